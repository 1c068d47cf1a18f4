"""Limits of the bodies of requests: many small values, and many bodies at once."""

import json
import time
import tracemalloc
from collections.abc import AsyncIterator

import httpx
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from haptic_trio.metrics import Families
from haptic_trio.webhook import bodies
from haptic_trio.webhook.admission import Admission
from haptic_trio.webhook.app import make_app
from haptic_trio.webhook.bodies import MOST_BYTES, MOST_COLLECTIONS, has_too_many_collections
from haptic_trio.webhook.metrics import WebhookMetrics
from tests.webhook.builders import body_of, review_of, web

JSON = "application/json"


def client() -> httpx.AsyncClient:
    """Return a client of an application that knows nothing to review with."""
    metrics = WebhookMetrics(Families(CollectorRegistry()))
    transport = httpx.ASGITransport(make_app(Admission(lambda: None, metrics), metrics, None))
    return httpx.AsyncClient(transport=transport, base_url="http://webhook", headers={"content-type": JSON})


@pytest.mark.parametrize("value", ["[]", "{}", '{"a":{}}', "[[]]", '{"a":1}'])
async def test_very_many_small_values_are_rejected_before_they_take_memory(value: str) -> None:
    head, tail = body_of(review_of({**web(), "spec": "VALUES"})).decode().split('"VALUES"')
    count = (MOST_BYTES - len(head) - len(tail) - 2) // (len(value) + 1)
    body = f"{head}[{','.join([value] * count)}]{tail}".encode()
    assert MOST_BYTES - 100 < len(body) <= MOST_BYTES

    async with client() as asking:
        tracemalloc.start()
        try:
            answer = await asking.post("/validate", content=body)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert answer.status_code == 413
    assert "250,000" in answer.text
    # Decoded, the values take 50 to 200 MB.
    assert most < 3 * MOST_BYTES


async def test_brackets_in_texts_are_no_values() -> None:
    body = body_of(review_of(web(annotations={"template": '[{"' * MOST_COLLECTIONS})))

    async with client() as asking:
        answer = await asking.post("/validate", content=body)

    assert answer.status_code == 200


SCALARS = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(VALUES, st.integers(0, 20))
def test_mappings_and_lists_of_any_text_are_counted(value: object, limit: int) -> None:
    def count(part: object) -> int:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return isinstance(part, dict | list) + sum(map(count, inner))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "MOST_COLLECTIONS", limit)
        assert has_too_many_collections(json.dumps(value).encode()) == (count(value) > limit)


@pytest.mark.parametrize("part", ['"', '\\"', '"\\', '"[', '"\\"[', "[", "\\"])
def test_any_text_is_counted_in_linear_time(part: str) -> None:
    text = b"[" * (MOST_COLLECTIONS + 1) + (part * MOST_BYTES)[:MOST_BYTES].encode()

    began = time.process_time()
    has_too_many_collections(text)

    # Quadratic time would be hours.
    assert time.process_time() - began < 5


async def test_bodies_of_all_requests_together_are_limited() -> None:
    release = trio.Event()
    sent_in, sent_out = trio.open_memory_channel[None](0)
    statuses: list[int] = []

    async def slow(size: int) -> AsyncIterator[bytes]:
        yield b" " * size
        await sent_in.send(None)
        await release.wait()

    async def send(asking: httpx.AsyncClient, size: int) -> None:
        statuses.append((await asking.post("/validate", content=slow(size))).status_code)

    async def is_answered() -> int:
        return (await asking.post("/validate", content=body_of(review_of(web())))).status_code

    with trio.fail_after(20):
        async with client() as asking:
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(send, asking, MOST_BYTES)
                for _ in range(4):
                    await sent_out.receive()
                assert await is_answered() == 503
                release.set()
            # Blanks are no review.
            assert statuses == [400] * 4
            assert await is_answered() == 200
