"""Writes at an API server, and what its rejections become."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import (
    AbsentKindError,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    ServerFailedError,
    ThrottledError,
    UnreachableError,
    error_of,
)
from haptic_trio.k8s.resource import Resource, ResourceType, version_of
from tests.k8s.api.api_cluster import connected
from tests.k8s.objects import INGRESSES, SERVICES
from tests.support.api_server.server import ApiServer, serving
from tests.support.kubernetes import ingress, service

LEASES = ResourceType("coordination.k8s.io/v1", "leases")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with serving(service("a")) as server:
        yield server


@pytest.fixture
async def cluster(server: ApiServer, tmp_path: Path) -> AsyncIterator[ApiCluster]:
    async with connected(server, tmp_path / "config") as cluster:
        yield cluster


def lease(holder: str, version: str = "") -> Resource:
    metadata = {"name": "leader", "namespace": "default", **({"resourceVersion": version} if version else {})}
    spec = {"holderIdentity": holder}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


async def test_created_object_is_returned_as_stored_and_cannot_be_created_twice(cluster: ApiCluster) -> None:
    created = await cluster.create(lease("me"))

    assert created["metadata"]["uid"]
    assert created == await cluster.get(LEASES, "default", "leader")
    with pytest.raises(AlreadyExistsError) as caught:
        await cluster.create(lease("you"))
    assert caught.value.reason == "AlreadyExists"
    assert "already exists" in str(caught.value)


async def test_name_is_generated(cluster: ApiCluster) -> None:
    metadata = {"generateName": "route.", "namespace": "default"}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "reason": "Quarantined"}

    names = {(await cluster.create(event))["metadata"]["name"] for _ in range(3)}

    assert len(names) == 3
    assert all(name.startswith("route.") for name in names)


async def test_of_two_who_replace_the_same_version_one_succeeds(cluster: ApiCluster) -> None:
    version = version_of(await cluster.create(lease("nobody")))
    outcomes: list[str] = []

    async def take(holder: str) -> None:
        try:
            await cluster.replace(lease(holder, version))
        except ConflictError:
            outcomes.append("conflict")
        else:
            outcomes.append(holder)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take, "one")
        nursery.start_soon(take, "two")

    (winner,) = set(outcomes) - {"conflict"}
    assert len(outcomes) == 2
    assert (await cluster.get(LEASES, "default", "leader"))["spec"]["holderIdentity"] == winner


async def test_status_is_merged_and_nothing_else(cluster: ApiCluster, server: ApiServer) -> None:
    server.put(ingress("web", spec_extra=1))
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}

    written = await cluster.patch_status(INGRESSES, "default", "web", status)

    assert written["status"] == status
    assert written["spec"] == ingress("web", spec_extra=1)["spec"]
    assert written["metadata"]["generation"] == 1
    ignored = await cluster.replace({**ingress("web"), "metadata": {"name": "web", "namespace": "default"}})
    assert ignored["status"] == status


async def test_apply_creates_owns_and_gives_back_fields(cluster: ApiCluster) -> None:
    def labels(**found: str) -> Resource:
        metadata = {"name": "applied", "namespace": "default", "labels": found}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    await cluster.apply({**labels(a="1", b="1"), "data": {"x": "1"}}, field_manager="us")
    after = await cluster.apply(labels(c="1"), field_manager="them")
    assert after["metadata"]["labels"] == {"a": "1", "b": "1", "c": "1"}

    after = await cluster.apply(labels(a="1"), field_manager="us")
    assert after["metadata"]["labels"] == {"a": "1", "c": "1"}
    assert "x" not in after.get("data", {})

    with pytest.raises(ConflictError, match="them"):
        await cluster.apply(labels(c="2"), field_manager="us")
    after = await cluster.apply(labels(c="2"), field_manager="us", force=True)
    assert after["metadata"]["labels"] == {"c": "2"}


async def test_status_is_applied_without_touching_that_of_others(cluster: ApiCluster, server: ApiServer) -> None:
    server.put(ingress("web"))
    await cluster.patch_status(INGRESSES, "default", "web", {"theirs": "kept"})
    own = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "default"},
        "status": {"ours": "1"},
    }

    written = await cluster.apply(own, field_manager="us", subresource="status")
    assert written["status"] == {"theirs": "kept", "ours": "1"}
    again = await cluster.apply(own, field_manager="us", subresource="status")
    assert version_of(again) == version_of(written)
    own["metadata"] = {"name": "missing", "namespace": "default"}
    with pytest.raises(NotFoundError):
        await cluster.apply(own, field_manager="us", subresource="status")


async def test_deletion_may_be_bound_to_one_object_or_one_version(cluster: ApiCluster) -> None:
    created = await cluster.create(lease("me"))
    with pytest.raises(ConflictError):
        await cluster.delete(LEASES, "default", "leader", uid="another")
    with pytest.raises(ConflictError):
        await cluster.delete(LEASES, "default", "leader", version="1")

    await cluster.delete(LEASES, "default", "leader", uid=created["metadata"]["uid"], version=version_of(created))

    for call in (cluster.get, cluster.delete):
        with pytest.raises(NotFoundError):
            await call(LEASES, "default", "leader")


async def test_kind_that_is_not_served_is_distinguished_from_a_missing_object(cluster: ApiCluster) -> None:
    with pytest.raises(AbsentKindError, match="Widget"):
        await cluster.create({"apiVersion": "demo.example.org/v1", "kind": "Widget", "metadata": {"name": "a"}})
    with pytest.raises(NotFoundError):
        await cluster.patch_status(SERVICES, "default", "b", {})


async def test_version_of_a_kind_is_taken_by_its_whole_name(cluster: ApiCluster) -> None:
    # `v1` is a part of `v1beta1`, and of no version that is served.
    with pytest.raises(NotFoundError):
        await cluster.get(ResourceType("gateway.networking.k8s.io/v1beta", "referencegrants"), "default", "a")
    metadata = {"name": "a", "namespace": "default"}
    grant = {"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant", "metadata": metadata}
    assert (await cluster.create(grant))["kind"] == "ReferenceGrant"


async def test_object_that_is_rejected_says_why(cluster: ApiCluster) -> None:
    with pytest.raises(InvalidError, match=r"metadata\.name: Required value"):
        await cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default"}})


async def test_request_that_the_server_puts_off_is_sent_again(cluster: ApiCluster, server: ApiServer) -> None:
    await cluster.get(SERVICES, "default", "a")
    server.faults.retry_after = 0
    server.faults.throttled = 2
    await cluster.create(lease("me"))

    server.faults.throttled = 10
    with pytest.raises(ThrottledError) as caught:
        await cluster.get(SERVICES, "default", "a")
    assert caught.value.retry_after == 0
    assert server.faults.throttled == 6


async def test_forbidden_and_failed_requests_are_distinguished(cluster: ApiCluster, server: ApiServer) -> None:
    await cluster.get(SERVICES, "default", "a")
    server.faults.forbidden.add("services")
    with pytest.raises(ForbiddenError):
        await cluster.get(SERVICES, "default", "a")
    server.faults.forbidden.clear()
    server.faults.failing = 1
    with pytest.raises(ServerFailedError):
        await cluster.get(SERVICES, "default", "a")


async def test_server_that_is_gone_is_unreachable_and_may_come_back(cluster: ApiCluster, server: ApiServer) -> None:
    await cluster.get(SERVICES, "default", "a")
    server.stop()
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(UnreachableError):
        await cluster.get(SERVICES, "default", "a")
    await server.start()
    assert await cluster.get(SERVICES, "default", "a")


async def test_idle_connection_that_the_server_has_closed_costs_no_request(
    cluster: ApiCluster, server: ApiServer
) -> None:
    for _ in range(3):
        await cluster.get(SERVICES, "default", "a")
        server.stop()
        await server.start()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"message":"no","reason":"Forbidden","code":403}', "read x: 403 no"),
        (b"upstream connect error", "read x: 403 upstream connect error"),
        (b"", "read x: 403 no reason given"),
        (b"\xff\xfe", "read x: 403 ��"),
    ],
)
def test_any_answer_becomes_a_readable_error(body: bytes, expected: str) -> None:
    error = error_of("read x", 403, body)
    assert isinstance(error, ForbiddenError)
    assert str(error) == expected


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)])
def test_retry_after_is_understood_in_seconds(header: str, seconds: float | None) -> None:
    assert error_of("x", 429, b"", header).retry_after == seconds


def test_unknown_status_is_a_plain_error() -> None:
    assert type(error_of("x", 418, b"")) is ApiError
    assert type(error_of("x", 403, b'{"x":' + b"[" * 20_000)) is ForbiddenError
