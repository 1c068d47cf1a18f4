"""YAML reader with line numbers and limits, for configurations and manifests."""
