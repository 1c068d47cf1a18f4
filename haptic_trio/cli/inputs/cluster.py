"""Cluster from the command line: a directory of manifests, or an API server."""

from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec
import trio

from haptic_trio.cli.inputs.options import InputOptions
from haptic_trio.cli.output.progress import Steps
from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Client, Report
from haptic_trio.k8s.manifests.directory import DirectoryCluster
from haptic_trio.k8s.manifests.objects import Check
from haptic_trio.k8s.resource import Place, Places, Resource, ResourceRef, nowhere, ref_of

_MOST_NAMED: Final = 3


class Cluster(Client, Protocol):
    """A client with a task that keeps it readable."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the cluster readable until cancelled; started() when the client is usable."""
        ...


def make_cluster(options: InputOptions, report: Report, check: Check | None = None) -> Cluster:
    """Return the cluster of *options*; the caller runs it. *report* gets problems with manifests or watches.

    With *check*, it also gets what this finds in the manifests of a directory;
    an API server has checked its objects.
    """
    if options.manifests is not None:
        return DirectoryCluster(options.manifests, report=as_given(report, options.manifests), check=check)
    from haptic_trio.k8s.api.auth import load_kubeconfig, load_service_account  # noqa: PLC0415  not for a directory
    from haptic_trio.k8s.api.cluster import ApiCluster  # noqa: PLC0415  its HTTP client takes 10 MB

    if options.kubeconfig is not None:
        return ApiCluster(partial(load_kubeconfig, options.kubeconfig, options.context), report=report)
    return ApiCluster(load_service_account, report=report)


def begin_reading(steps: Steps, cluster: Client) -> None:
    """Show that *cluster* is read, and how much of it has been."""
    if isinstance(cluster, DirectoryCluster):
        steps.begin("reading manifests: bytes", lambda: (cluster.listing.done, cluster.listing.total))
    else:
        steps.begin("connecting to the API server")


def places_of(options: InputOptions, cluster: Client, *, stays: bool) -> Places:
    """Return the places of objects in the directory of *options*, as the user wrote it; those of now unless *stays*."""
    if options.manifests is None or not isinstance(cluster, DirectoryCluster):
        return nowhere
    absolute, given = f"{options.manifests.absolute()}/", f"{options.manifests}/"
    place_of = cluster.place_of if stays else cluster.places()

    def place_as_given(ref: ResourceRef) -> Place | None:
        place = place_of(ref)
        return place._replace(source=place.source.replace(absolute, given)) if place is not None else None

    return place_as_given


def hint_for_missing(cluster: Client, hint: str) -> str:
    """Return *hint*, about a ConfigMap that is missing from a directory, as it applies to *cluster*.

    In a directory, it names the ConfigMaps that hold a configuration.
    """
    if not isinstance(cluster, DirectoryCluster):
        return hint.replace("add it to the manifests", "create it")
    found = [str(ref_of(one)) for one in cluster.objects() if one["kind"] == "ConfigMap" and _has_config(one)]
    return f"{hint} (there is {', '.join(found[:_MOST_NAMED])})" if found else hint


def _has_config(config_map: Resource) -> bool:
    data = config_map.get("data")
    return isinstance(data, dict) and "config" in data


def as_given(report: Report, directory: Path) -> Report:
    """Return *report* with paths below *directory* as the user wrote them, such as relative ones."""
    absolute, given = f"{directory.absolute()}/", f"{directory}/"

    def report_as_given(source: str, problems: tuple[Problem, ...]) -> None:
        report(
            source.replace(absolute, given),
            tuple(
                msgspec.structs.replace(
                    problem,
                    source=problem.source.replace(absolute, given),
                    message=problem.message.replace(absolute, given),
                )
                for problem in problems
            ),
        )

    return report if absolute == given else report_as_given
