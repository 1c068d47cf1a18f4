"""Cluster from the command line: a directory of manifests, or an API server."""

from functools import partial
from typing import Protocol

import trio

from haptic_trio.cli.inputs.options import InputOptions
from haptic_trio.k8s.api.auth import load_kubeconfig, load_service_account
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.client import Client, Report
from haptic_trio.k8s.manifests.directory import DirectoryCluster


class Cluster(Client, Protocol):
    """A client with a task that keeps it readable."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the cluster readable until cancelled; started() when the client is usable."""
        ...


def make_cluster(options: InputOptions, report: Report) -> Cluster:
    """Return the cluster of *options*; the caller runs it. *report* gets problems with manifests or watches."""
    if options.manifests is not None:
        return DirectoryCluster(options.manifests, report=report)
    if options.kubeconfig is not None:
        return ApiCluster(partial(load_kubeconfig, options.kubeconfig, options.context), report=report)
    return ApiCluster(load_service_account, report=report)
