"""Status, Kubernetes Events and Services that the leader writes for watched objects."""
