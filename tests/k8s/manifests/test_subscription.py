import pytest
import trio

from haptic_trio.k8s.client import Deleted, Listed, Selection, Upserted
from haptic_trio.k8s.manifests.catalog import ObjectChange
from haptic_trio.k8s.manifests.subscription import Matcher, Subscription
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.selectors import SelectorError
from tests.k8s.objects import INGRESSES, SERVICES, service

ALL = Matcher(Selection(type=SERVICES))
A, A2, B = service("a"), service("a", version="2"), service("b")


def test_a_matcher_decides_by_type_namespace_labels_and_fields() -> None:
    labelled = service("a", "shop")
    labelled["metadata"]["labels"] = {"app": "web"}

    assert Matcher(Selection(type=SERVICES, namespaces=("x", "shop"))).matches(labelled)
    assert not Matcher(Selection(type=SERVICES, namespaces=("x",))).matches(labelled)
    assert not Matcher(Selection(type=INGRESSES)).matches(labelled)
    assert Matcher(Selection(type=SERVICES, label_selector="app=web")).matches(labelled)
    assert not Matcher(Selection(type=SERVICES, label_selector="app!=web")).matches(labelled)
    assert Matcher(Selection(type=SERVICES, field_selector="metadata.name=a")).matches(labelled)
    assert not Matcher(Selection(type=SERVICES, field_selector="metadata.name!=a")).matches(labelled)


def test_an_object_that_no_longer_matches_is_deleted_for_the_watcher() -> None:
    matcher = Matcher(Selection(type=SERVICES, field_selector="metadata.resourceVersion=1"))

    assert matcher.event_for(ObjectChange(A, A2)) == Deleted(A)
    assert matcher.event_for(ObjectChange(A2, A)) == Upserted(A)
    assert matcher.event_for(ObjectChange(A2, None)) is None
    assert matcher.event_for(ObjectChange(None, A)) == Upserted(A)


def test_a_selector_that_cannot_be_read_is_rejected() -> None:
    with pytest.raises(SelectorError):
        Matcher(Selection(type=SERVICES, label_selector="a in b"))


async def test_the_first_event_is_the_list_at_the_moment_of_reading() -> None:
    content: list[Resource] = [A]
    subscription = Subscription(ALL, lambda: content, buffer=2)
    content.append(B)
    subscription.offer(ObjectChange(None, B))

    assert await anext(subscription) == Listed((A, B))

    subscription.offer(ObjectChange(B, None))
    assert await anext(subscription) == Deleted(B)


async def test_a_reader_that_falls_behind_gets_a_new_list_instead_of_a_gap() -> None:
    content: list[Resource] = []
    subscription = Subscription(ALL, lambda: content, buffer=2)
    await anext(subscription)
    for _change in range(2):
        subscription.offer(ObjectChange(None, A))
    assert await anext(subscription) == Upserted(A)

    for _change in range(5):
        subscription.offer(ObjectChange(None, A))
    content[:] = [A2, B]

    assert await anext(subscription) == Listed((A2, B))
    subscription.offer(ObjectChange(B, None))
    assert await anext(subscription) == Deleted(B)


async def test_a_waiting_reader_is_woken(autojump_clock: trio.testing.MockClock) -> None:
    subscription = Subscription(ALL, list, buffer=2)
    await anext(subscription)

    async def offer_later() -> None:
        await trio.sleep(1)
        subscription.offer(ObjectChange(None, service("other", "x") | {"kind": "Pod"}))
        await trio.sleep(1)
        subscription.offer(ObjectChange(None, A))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(offer_later)
        assert await anext(subscription) == Upserted(A)
    assert trio.current_time() == pytest.approx(2)


async def test_no_event_is_lost_when_a_reader_is_cancelled() -> None:
    subscription = Subscription(ALL, list, buffer=2)
    await anext(subscription)
    subscription.offer(ObjectChange(None, A))

    with trio.CancelScope() as scope:
        scope.cancel()
        await anext(subscription)

    assert await anext(subscription) == Upserted(A)


async def test_a_closed_subscription_ends_after_what_is_buffered() -> None:
    subscription = Subscription(ALL, list, buffer=2)
    await anext(subscription)
    subscription.offer(ObjectChange(None, A))
    subscription.close()

    assert [event async for event in subscription] == [Upserted(A)]
