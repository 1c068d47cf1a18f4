"""Rig of the benchmark: controller, cluster, backends and clients."""
