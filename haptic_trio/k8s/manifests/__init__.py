"""A directory of manifests as the cluster."""
