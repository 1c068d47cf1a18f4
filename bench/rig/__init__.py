"""The rig of the latency bench: manifests, backends, the controller in a process of its own, clients, and sums."""
