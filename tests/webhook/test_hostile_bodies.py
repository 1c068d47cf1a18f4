"""Whatever is sent is answered, without a traceback: a review, or what is wrong with it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from haptic_trio.config.load import load_config
from haptic_trio.metrics import Families
from haptic_trio.pipeline.review.dry_run import DryRun
from haptic_trio.pipeline.review.dry_run_object import Replacements
from haptic_trio.webhook.admission import Admission, Present
from haptic_trio.webhook.app import make_app
from haptic_trio.webhook.metrics import WebhookMetrics
from haptic_trio.webhook.targets import targets_of
from tests.webhook.builders import body_of, review_of, web

JSON = {"content-type": "application/json"}
ANSWERS = {200, 400, 413, 415}
WATCHED = {
    "ingresses": {
        "apiVersion": "networking.k8s.io/v1",
        "resources": "ingresses",
        "labelSelector": "app!=other",
        "fieldSelector": "metadata.name!=other,spec.type!=other",
        "enableValidationWebhook": True,
    }
}
GOOD = body_of(review_of(web(labels={"app": "a"}, annotations={"note": "grüße"}), old=web()))


class NoDryRuns:
    """Finds nothing wrong."""

    async def run(self, replacements: Replacements, *, limit: float) -> DryRun:
        """See `DryRuns.run`."""
        return DryRun()


def make_admission() -> tuple[Admission, WebhookMetrics]:
    """Return an admission that watches Ingresses, and its metrics."""
    metrics = WebhookMetrics(Families(CollectorRegistry()))
    text = json.dumps({"templating": {"libraries": ["base"]}, "watchedResources": WATCHED})
    resource = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"config": text}}
    present = Present(targets_of(load_config(resource, None).config), NoDryRuns(), lambda _namespace: frozenset())
    return Admission(lambda: present, metrics), metrics


ADMISSION, METRICS = make_admission()


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the application itself: what that raises is raised here."""
    transport = httpx.ASGITransport(make_app(ADMISSION, METRICS, None))
    async with httpx.AsyncClient(transport=transport, base_url="http://webhook") as found:
        yield found


async def send(body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
    async with client() as asking:
        return await asking.post("/validate", content=body, headers=headers or JSON)


def send_now(body: bytes) -> int:
    """Return the status of the answer to *body*; raises what the application does."""
    return trio.run(send, body).status_code


@pytest.mark.parametrize(
    "body",
    [
        GOOD.replace(b"gr\xc3\xbc", b"gr\\ud800"),
        GOOD + b"\xff",
        GOOD.decode().encode("utf-16"),
        b"\xef\xbb\xbf" + GOOD,
    ],
    ids=["escaped half", "at the end", "utf-16", "byte order mark"],
)
async def test_text_that_is_not_json_is_a_bad_request(body: bytes) -> None:
    answer = await send(body)

    assert answer.status_code == 400
    assert "AdmissionReview" in answer.text


@pytest.mark.parametrize(
    "body",
    [
        GOOD.replace(b"gr\xc3\xbc\xc3\x9fe", b"gr\xfc\xdfe"),
        GOOD.replace(b"gr\xc3\xbc", b"gr\xed\xa0\x80"),
        GOOD.replace(b"gr\xc3\xbc", b"gr\xc3"),
        GOOD.replace(b'"labels"', b'"lab\xffels"'),
    ],
    ids=["latin-1", "encoded half", "cut", "name"],
)
async def test_bytes_that_are_not_utf_8_are_replaced(body: bytes) -> None:
    assert body != GOOD

    assert (await send(body)).status_code == 200


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/json, text/plain", "\xff", "application/xml"])
async def test_other_content_types_are_rejected(content_type: str) -> None:
    async with client() as asking:
        answer = await asking.post(
            "/validate", content=GOOD, headers=[(b"content-type", content_type.encode("latin-1"))]
        )

    assert answer.status_code == 415


def test_review_itself_is_answered() -> None:
    assert send_now(GOOD) == 200


@given(st.lists(st.tuples(st.integers(0, len(GOOD)), st.integers(0, 4), st.binary(max_size=6)), min_size=1, max_size=4))
def test_bytes_that_were_changed_are_answered(changes: list[tuple[int, int, bytes]]) -> None:
    body = GOOD
    for place, length, put in changes:
        body = body[:place] + put + body[place + length :]

    assert send_now(body) in ANSWERS


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "app", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)
PATHS = [
    (), ("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "labels"),
    ("metadata", "labels", "app"), ("metadata", "annotations"), ("metadata", "deletionTimestamp"),
    ("metadata", "creationTimestamp"), ("spec",), ("spec", "type"), ("data",), ("stringData",),
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(PATHS), VALUES, min_size=1, max_size=3), st.booleans(), VALUES)
@settings(max_examples=200)
def test_objects_of_any_shape_are_answered(changes: dict[tuple[str, ...], Any], is_old: bool, uid: Any) -> None:
    changed: Any = web(labels={"app": "a"})
    for path, value in changes.items():
        changed = _with(changed, path, value)
    review = review_of(changed) if not is_old else review_of(None, old=changed)
    review["request"]["name"] = uid

    assert send_now(json.dumps(review).encode()) in ANSWERS


def _with(resource: Any, path: tuple[str, ...], value: Any) -> Any:
    if not path:
        return value
    inner = resource if isinstance(resource, dict) else {}
    return {**inner, path[0]: _with(inner.get(path[0], {}), path[1:], value)}
