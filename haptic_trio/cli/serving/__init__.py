"""Components of `serve`: endpoints, probes, console, webhook, fleet and traces."""
