"""The scenarios of conformance for Ingress: default backend, hosts, classes, load balancing and paths."""

import ssl
import uuid
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import httpx
import pytest
import trio

from tests.cluster.control_plane.state import State
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.manifests import deployment, pod, service
from tests.conformance.ingress_site import (
    ABSENT,
    SETTLE_LIMIT,
    TLS_HOST,
    Answer,
    IngressSite,
    Rules,
    ask,
    backend,
    events_about,
    ingress,
    install,
    uninstall,
    until_served,
)

pytestmark = [pytest.mark.cluster, pytest.mark.haproxy]
REPLICAS = 10
REQUESTS = 100
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture(scope="module")
def site(cluster_state: State, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IngressSite]:
    """An installation that all scenarios share."""
    namespace = f"ingress-{uuid.uuid4().hex[:8]}"
    root: Path = tmp_path_factory.mktemp("ingress")
    yield trio.run(install, cluster_state, namespace, root)
    trio.run(uninstall, cluster_state, namespace)


# Default backend


async def test_ingress_without_rules_sends_everything_to_its_default_backend(
    cluster: Cluster, site: IngressSite
) -> None:
    catch_all = ingress(site.namespace, "catch-all", {}, defaultBackend=backend("catch-all"))
    await cluster.apply([pod("catch-all"), service("catch-all"), catch_all], site.namespace)
    try:
        await until_served(cluster, site, "any.test", "/", "catch-all")
        for method, path in product(METHODS, ("/", "/sub-path", "/sub/path?with=query")):
            answer = await ask(cluster, site, "my-host.test", path, method=method)
            assert (answer.status, answer.backend) == (200, "catch-all")
            assert (answer.said["method"], answer.said["path"]) == (method, path)
            assert answer.said["host"] == "my-host.test"
    finally:
        with trio.move_on_after(SETTLE_LIMIT, shield=True):
            await cluster.delete(catch_all, site.namespace)
            await until_served(cluster, site, "any.test", "/", ABSENT)


# Hosts


async def test_host_with_a_certificate_is_served_over_tls(cluster: Cluster, site: IngressSite) -> None:
    with trio.fail_after(SETTLE_LIMIT):
        # The handshake fails unless the certificate is one for this very host.
        answer = await until(partial(_ask_over_tls, cluster, site))

    assert answer is not None
    assert (answer.status, answer.backend) == (200, "exact-host")


HOSTS = {
    "a host is served": (TLS_HOST, "exact-host"),
    "another host of the same domain is not": ("subdomain.bar.test", ABSENT),
    "a wildcard stands for one label": ("bar.foo.test", "wildcard-host"),
    "a wildcard does not stand for two labels": ("baz.bar.foo.test", ABSENT),
    "a wildcard does not stand for no label": ("foo.test", ABSENT),
}


@pytest.mark.parametrize(("host", "expected"), HOSTS.values(), ids=HOSTS)
async def test_host_rules(cluster: Cluster, site: IngressSite, host: str, expected: str) -> None:
    await _assert_served(cluster, site, host, "/", expected)


# Classes


async def test_ingress_of_an_unknown_class_is_neither_served_nor_given_an_address(
    cluster: Cluster, site: IngressSite
) -> None:
    rules = {"unknown.test": {("Prefix", "/"): "root"}}
    own = {"known.test": {("Prefix", "/"): "root"}}
    foreign = ingress("no-such-class", "unknown-class", rules)
    await cluster.apply([foreign, ingress(site.namespace, "known-class", own)], site.namespace)

    # That one came later: what it is served by has seen the other.
    await until_served(cluster, site, "known.test", "/", "root")

    await _assert_served(cluster, site, "unknown.test", "/", ABSENT)
    found = await cluster.find(await cluster.path_of(foreign, site.namespace))
    assert found is not None
    assert not found.get("status", {}).get("loadBalancer")


# What is not served as it says


async def test_the_oldest_ingress_wins_a_path_and_the_other_gets_a_warning(cluster: Cluster, site: IngressSite) -> None:
    rules = {"twice.test": {("Prefix", "/"): "root"}}
    old, young = ingress(site.namespace, "old", rules), ingress(site.namespace, "young", _led_to(rules, "exact-foo"))
    await cluster.apply([old], site.namespace)
    await until_served(cluster, site, "twice.test", "/", "root")
    # Should both be of the same second, the first by name is the older one.
    await cluster.apply([young], site.namespace)

    note = await _wait_note(cluster, site, "young", "HostPathConflict")
    assert "twice.test|/ of maps/path-prefix.map" in note
    assert note.endswith(f"Ingress {site.namespace}/old comes first")
    await _assert_served(cluster, site, "twice.test", "/", "root")

    await cluster.delete(old, site.namespace)
    await until_served(cluster, site, "twice.test", "/", "exact-foo")
    assert "HostPathConflict" in await _wait_note(cluster, site, "young", "Resolved")


async def test_resource_backends_are_rejected_with_an_event(cluster: Cluster, site: IngressSite) -> None:
    bucket = {"resource": {"apiGroup": "example.com", "kind": "Bucket", "name": "files"}}
    rejected = ingress(site.namespace, "bucket", {"fine.test": {("Prefix", "/"): "root"}}, defaultBackend=bucket)
    await cluster.apply([rejected], site.namespace)

    assert "resource backends are not supported" in await _wait_note(cluster, site, "bucket", "Quarantined")
    # The paths of a rejected Ingress are closed as a whole.
    assert (await ask(cluster, site, "fine.test", "/")).status == 503
    await _assert_served(cluster, site, "root.test", "/", "root")


async def test_services_of_type_external_name_are_rejected_with_a_warning(cluster: Cluster, site: IngressSite) -> None:
    outside = service("outside")
    outside["spec"] = {"type": "ExternalName", "externalName": "outside.example.com"}
    naming = ingress(site.namespace, "naming", {"outside.test": {("Prefix", "/"): "outside"}})
    await cluster.apply([outside, naming], site.namespace)

    assert "of type ExternalName" in await _wait_note(cluster, site, "naming", "ServiceNotSupported")
    assert "ExternalName" in await _wait_note(cluster, site, "outside", "Quarantined", kind="Service")
    assert (await ask(cluster, site, "outside.test", "/")).status == 503


async def test_a_missing_object_of_an_ingress_has_a_warning_until_it_exists(
    cluster: Cluster, site: IngressSite
) -> None:
    rules = {"late.test": {("Prefix", "/"): "late"}}
    late = ingress(site.namespace, "late", rules, tls=[{"hosts": ["late.test"], "secretName": "late-tls"}])
    await cluster.apply([late], site.namespace)

    assert f"{site.namespace}/late does not exist" in await _wait_note(cluster, site, "late", "ServiceNotFound")
    assert f"{site.namespace}/late-tls" in await _wait_note(cluster, site, "late", "CertificateNotFound")
    await cluster.apply([service("late")], site.namespace)
    assert "no ready endpoint" in await _wait_note(cluster, site, "late", "NoEndpoints")
    assert "ServiceNotFound" in await _wait_note(cluster, site, "late", "Resolved")
    reported = [one["reason"] for one in await events_about(cluster, site.namespace, "Ingress", "late")]
    assert sorted(reported) == ["CertificateNotFound", "NoEndpoints", "Resolved", "ServiceNotFound"]


# Load balancing


async def test_requests_reach_every_pod(cluster: Cluster, site: IngressSite) -> None:
    many = ingress(site.namespace, "many", {"many.test": {("Prefix", "/"): "many"}})
    await cluster.apply([deployment("many", 1), service("many"), many], site.namespace)
    pods = await cluster.wait_pods(site.namespace, "app=many", 1)
    await until_served(cluster, site, "many.test", "/", pods[0]["metadata"]["name"])

    with trio.fail_after(60):
        await cluster.apply([deployment("many", REPLICAS)], site.namespace)
        pods = await cluster.wait_pods(site.namespace, "app=many", REPLICAS)
        for one in pods:
            await until_served(cluster, site, "many.test", "/", one["metadata"]["name"])
    answers = [await ask(cluster, site, "many.test", "/") for _ in range(REQUESTS)]

    assert {one.status for one in answers} == {200}
    assert {one.backend for one in answers} == {one["metadata"]["name"] for one in pods}


# Paths

PATHS = {
    "exact: the path": ("exact.test", "/foo", "exact-foo"),
    "exact: not with a slash at its end": ("exact.test", "/foo/", ABSENT),
    "exact: not in another case": ("exact.test", "/FOO", ABSENT),
    "exact: not another label": ("exact.test", "/bar", ABSENT),
    "exact: a slash at the end counts": ("exact-slash.test", "/foo", ABSENT),
    "prefix: the path": ("prefix.test", "/foo", "prefix-foo"),
    "prefix: with a slash at its end": ("prefix.test", "/foo/", "prefix-foo"),
    "prefix: not in another case": ("prefix.test", "/FOO", ABSENT),
    "prefix: the longest": ("prefix.test", "/aaa/bbb", "prefix-aaa-bbb"),
    "prefix: what is below it": ("prefix.test", "/aaa/ccc", "prefix-aaa"),
    "prefix: the root has all below it": ("root.test", "/aaa/ccc", "root"),
    "prefix: by labels, not by characters": ("prefix.test", "/aaaccc", ABSENT),
    "prefix with a slash at its end: with it": ("slash.test", "/aaa/bbb/", "prefix-slash"),
    "prefix with a slash at its end: without it": ("slash.test", "/aaa/bbb", "prefix-slash"),
    "prefix with a slash at its end: what is below it": ("slash.test", "/aaa/bbb/ccc", "prefix-slash"),
    "exact goes before prefix": ("mixed.test", "/foo", "mixed-exact"),
}


@pytest.mark.parametrize(("host", "path", "expected"), PATHS.values(), ids=PATHS)
async def test_path_rules(cluster: Cluster, site: IngressSite, host: str, path: str, expected: str) -> None:
    await _assert_served(cluster, site, host, path, expected)


def _led_to(rules: Rules, name: str) -> Rules:
    return {host: dict.fromkeys(paths, name) for host, paths in rules.items()}


async def _wait_note(cluster: Cluster, site: IngressSite, name: str, reason: str, kind: str = "Ingress") -> str:
    """Wait for an Event with *reason* about an object, and return its text."""

    async def look() -> str:
        reported = await events_about(cluster, site.namespace, kind, name)
        return next((str(one["note"]) for one in reported if one["reason"] == reason), "")

    with trio.fail_after(SETTLE_LIMIT):
        return await until(look)


async def _ask_over_tls(cluster: Cluster, site: IngressSite) -> Answer | None:
    try:
        return await ask(cluster, site, TLS_HOST, "/", tls=True)
    except (httpx.TransportError, ssl.SSLError):
        return None


async def _assert_served(cluster: Cluster, site: IngressSite, host: str, path: str, expected: str) -> None:
    answer = await ask(cluster, site, host, path)
    assert (answer.status, answer.backend) == ((404, "") if expected == ABSENT else (200, expected))
