"""What the benchmark runs: controller, cluster, backends and clients."""
