"""The cluster that the tests of this folder share."""

from tests.cluster.fixtures import cluster, cluster_state, namespace

__all__ = ["cluster", "cluster_state", "namespace"]
