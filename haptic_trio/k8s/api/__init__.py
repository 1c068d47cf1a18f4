"""An API server as the cluster: lists, watches, credentials, leases and writes."""
