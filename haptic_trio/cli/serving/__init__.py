"""The parts of `serve`: probes, console, webhook, fleet and traces."""
