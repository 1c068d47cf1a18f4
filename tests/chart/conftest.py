"""A cluster for the tests of the chart, and helm."""

from tests.chart.support.rendering import helm
from tests.cluster.fixtures import cluster, cluster_state, namespace

__all__ = ["cluster", "cluster_state", "helm", "namespace"]
