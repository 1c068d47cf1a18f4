"""The client sends the server the selectors that it supports, and compares the other fields itself."""

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

from haptic_trio.k8s.api.listing import Query
from haptic_trio.k8s.client import Selection
from haptic_trio.k8s.resource import ResourceType
from haptic_trio.k8s.selectors import SelectorError
from tests.k8s.api.api_cluster import Reports
from tests.k8s.api.scripted_server import ScriptedServer, answer, status, stream
from tests.k8s.objects import SERVICES, service

SECRETS = ResourceType("v1", "secrets")


@pytest.mark.parametrize(
    ("resource_type", "selector", "params"),
    [
        (SERVICES, "", {}),
        (SERVICES, "metadata.name=a", {"fieldSelector": "metadata.name=a"}),
        (
            SERVICES,
            " metadata.name == a , metadata.namespace!=b",
            {"fieldSelector": "metadata.name=a,metadata.namespace!=b"},
        ),
        (SERVICES, "spec.type=LoadBalancer", {}),
        (SERVICES, "spec.type=LoadBalancer,metadata.name!=a", {"fieldSelector": "metadata.name!=a"}),
        (SERVICES, r"metadata.name=a\,b\=c\\", {"fieldSelector": r"metadata.name=a\,b\=c\\"}),
        (SECRETS, "type=kubernetes.io/tls", {"fieldSelector": "type=kubernetes.io/tls"}),
        (SERVICES, "type=kubernetes.io/tls", {}),
    ],
)
def test_server_is_asked_for_the_fields_it_can_select_by(
    resource_type: ResourceType, selector: str, params: dict[str, str]
) -> None:
    assert Query(Selection(type=resource_type, field_selector=selector)).params == params


def test_labels_are_left_to_the_server_as_they_are_written() -> None:
    query = Query(Selection(type=SERVICES, label_selector="app=web,tier in (a, b)"))

    assert query.params == {"labelSelector": "app=web,tier in (a, b)"}
    assert query.matches(service("a"))


def test_other_fields_are_compared_here() -> None:
    query = Query(Selection(type=SERVICES, field_selector="spec.type=LoadBalancer"))

    assert query.matches(service("a", spec={"type": "LoadBalancer"}))
    assert not query.matches(service("a", spec={"type": "ClusterIP"}))
    assert not query.matches(service("a"))


def test_selector_that_cannot_be_read_is_rejected_before_anything_is_asked() -> None:
    with pytest.raises(SelectorError):
        Query(Selection(type=SERVICES, label_selector="a=("))


@pytest.mark.parametrize("stream_lists", [True, False])
async def test_objects_of_a_list_are_counted_before_it_is_complete(
    autojump_clock: MockClock, stream_lists: bool
) -> None:
    page = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [service("one"), service("two")]}
    events = [{"type": "ADDED", "object": service(name)} for name in ("one", "two")]
    streamed = msgspec.json.Encoder().encode_lines(events)

    def respond(request: httpx.Request) -> httpx.Response:
        if "watch" in request.url.params:
            return stream(streamed, seconds=1)
        return answer(page) if "continue" not in request.url.params else status(500, "InternalError")

    server = ScriptedServer(respond)
    async with (
        server.connected(Reports(), stream_lists=stream_lists) as cluster,
        cluster.watch(Selection(type=SERVICES)),
    ):
        await trio.sleep(0.1)
        assert str(cluster.listing) == "listed 2 objects"
        assert cluster.counts.lists == {}
