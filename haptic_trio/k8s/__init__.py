"""The cluster: an API server, or a directory of manifests that stands for one."""
