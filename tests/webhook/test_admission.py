"""Reviews are bounded, and in favour of the object wherever nothing can be said."""

import base64
import json
import threading
from collections.abc import Callable

import msgspec
import pytest
import trio
from prometheus_client import CollectorRegistry
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.config.load import load_config
from haptic_trio.metrics import Families
from haptic_trio.pipeline.review.dry_run import DryRun
from haptic_trio.pipeline.review.dry_run_object import DryRunError, Replacements
from haptic_trio.webhook.admission import Admission, AdmissionLimits, Present
from haptic_trio.webhook.hidden import MOST_WORDS
from haptic_trio.webhook.metrics import ALLOWED, FOREIGN, REJECTED, UNCHECKED, WebhookMetrics
from haptic_trio.webhook.review import Answer
from haptic_trio.webhook.targets import targets_of
from tests.webhook.builders import fault, request_of, web


class FakeDryRuns:
    """Answers with what a test says, after what it says."""

    def __init__(self, outcome: DryRun | DryRunError | None = None, seconds: float = 0.0) -> None:
        self.outcome = outcome or DryRun()
        self.seconds = seconds
        self.asked: list[Replacements] = []

    async def run(self, replacements: Replacements, *, limit: float) -> DryRun:
        """See `DryRuns.run`."""
        self.asked.append(replacements)
        await trio.sleep(self.seconds)
        if isinstance(self.outcome, DryRunError):
            raise self.outcome
        return self.outcome


class OneAtATime(FakeDryRuns):
    """Answers one after the other, in the order of the questions, as a pipeline does."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds=seconds)
        self.namespaces: list[str] = []
        self._lock = trio.Lock()

    async def run(self, replacements: Replacements, *, limit: float) -> DryRun:
        """See `DryRuns.run`."""
        async with self._lock:
            self.namespaces += [ref.namespace for ref in replacements["ingresses"]]
            return await super().run(replacements, limit=limit)


class Rig:
    """An admission over a fake."""

    def __init__(
        self,
        dry_runs: FakeDryRuns,
        *,
        waiting: int = 2,
        is_ready: bool = True,
        hidden: Callable[[str], frozenset[str] | None] = lambda _namespace: frozenset(),
    ) -> None:
        self.registry = CollectorRegistry()
        watched = {
            "ingresses": {
                "apiVersion": "networking.k8s.io/v1",
                "resources": "ingresses",
                "enableValidationWebhook": True,
            }
        }
        text = json.dumps({"templating": {"libraries": ["base"]}, "watchedResources": watched})
        resource = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"config": text}}
        present = Present(targets_of(load_config(resource, None).config), dry_runs, hidden)
        self.admission = Admission(
            lambda: present if is_ready else None,
            WebhookMetrics(Families(self.registry)),
            limits=AdmissionLimits(deadline=3.0, margin=0.5, waiting=waiting),
        )

    def count(self, outcome: str) -> float:
        """Return how many requests were answered so."""
        return self.registry.get_sample_value("webhook_requests_total", {"outcome": outcome}) or 0.0


async def test_good_object_passes_and_is_counted() -> None:
    rig = Rig(FakeDryRuns())

    answer = await rig.admission.review(request_of(web()))

    assert answer.allowed
    assert answer.warnings == ()
    assert rig.count(ALLOWED) == 1


async def test_bad_object_is_rejected_and_counted() -> None:
    rig = Rig(FakeDryRuns(DryRun(faults=(fault("no"),))))

    assert not (await rig.admission.review(request_of(web()))).allowed
    assert not (await rig.admission.review(request_of(web(), dry_run=True))).allowed
    assert rig.count(REJECTED) == 2


async def test_replica_that_is_not_ready_accepts_everything_with_a_warning() -> None:
    rig = Rig(FakeDryRuns(DryRun(faults=(fault("no"),))), is_ready=False)

    answer = await rig.admission.review(request_of(web()))

    assert answer.allowed
    assert answer.warnings == ("Ingress default/web was accepted without review: haptic-trio is not ready",)
    assert rig.count(UNCHECKED) == 1


async def test_what_cannot_be_tried_passes_with_the_reason() -> None:
    rig = Rig(FakeDryRuns(DryRunError("nothing has been rendered yet")))

    answer = await rig.admission.review(request_of(web()))

    assert answer.allowed
    assert "nothing has been rendered yet" in answer.warnings[0]


@pytest.mark.parametrize(("asked", "taken"), [(None, 3.0), (10.0, 3.0), (2.0, 1.5), (0.2, 0.1)])
async def test_review_ends_before_the_api_server_gives_up(
    asked: float | None, taken: float, autojump_clock: MockClock
) -> None:
    rig = Rig(FakeDryRuns(seconds=60.0))

    answer = await rig.admission.review(request_of(web()), limit=asked)

    assert answer.allowed
    assert "review took longer" in answer.warnings[0]
    assert trio.current_time() == pytest.approx(taken)


async def test_no_more_than_so_many_wait(autojump_clock: MockClock) -> None:
    dry_runs = FakeDryRuns(seconds=1.0)
    rig = Rig(dry_runs, waiting=2)
    answers = []

    async def ask() -> None:
        answers.append(await rig.admission.review(request_of(web())))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)

    assert len(dry_runs.asked) == 2
    assert all(answer.allowed for answer in answers)
    assert sum("too many objects" in answer.warnings[0] for answer in answers if answer.warnings) == 3
    # And afterwards there is room again.
    await rig.admission.review(request_of(web()))
    assert len(dry_runs.asked) == 3


async def test_reviews_of_a_namespace_do_not_wait_behind_many_of_another(autojump_clock: MockClock) -> None:
    dry_runs = OneAtATime(seconds=0.5)
    rig = Rig(dry_runs, waiting=32)
    answers: dict[str, list[Answer]] = {"many": [], "other": []}

    async def ask(namespace: str) -> None:
        request = msgspec.structs.replace(request_of(web(namespace=namespace)), namespace=namespace)
        answers[namespace].append(await rig.admission.review(request))

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(ask, "many")
        await wait_all_tasks_blocked()
        nursery.start_soon(ask, "other")

    assert [answer.warnings for answer in answers["other"]] == [()]
    assert dry_runs.namespaces.index("other") == 1
    warnings = [answer.warnings[0] for answer in answers["many"] if answer.warnings]
    assert sum("too many objects of its namespace" in warning for warning in warnings) == 32


async def test_what_is_going_anyway_and_what_is_not_watched_is_not_tried() -> None:
    dry_runs = FakeDryRuns(DryRun(faults=(fault("no"),)))
    rig = Rig(dry_runs)
    going = web(deletionTimestamp="2026-01-01T00:00:00Z")
    other = {**web(), "kind": "Ingress"}
    request = request_of(going, old=web())

    assert (await rig.admission.review(request)).allowed
    assert (await rig.admission.review(request_of(other, old=other))).allowed is False
    assert len(dry_runs.asked) == 1
    assert rig.count(FOREIGN) == 1


async def test_content_of_secrets_is_in_no_answer() -> None:
    found = DryRun(faults=(fault("cannot read hunter2, nor c2VjcmV0LXZhbHVl, nor secret-value"),))
    rig = Rig(
        FakeDryRuns(found), hidden=lambda namespace: frozenset({"hunter2"}) if namespace == "default" else frozenset()
    )
    secret = {**web(), "kind": "Secret", "data": {"key": base64.b64encode(b"secret-value").decode()}}

    answer = await rig.admission.review(request_of(secret))

    # Another object than the fault is about, in its namespace.
    assert not answer.allowed
    for hidden in ("hunter2", "secret-value", "c2VjcmV0LXZhbHVl"):
        assert hidden not in answer.message


async def test_secrets_of_other_namespaces_are_in_no_answer_about_the_complete_configuration() -> None:
    fails = fault("cannot read hunter2")
    about_all = msgspec.structs.replace(fails, subject=None)

    def hidden(namespace: str) -> frozenset[str] | None:
        return frozenset({"hunter2"}) if namespace == "" else frozenset()

    def too_many(namespace: str) -> frozenset[str] | None:
        return frozenset({"hunter2"}) if namespace == "default" else None

    for found in (hidden, too_many):
        rig = Rig(FakeDryRuns(DryRun(faults=(about_all,))), hidden=found)
        assert "cannot read <secret>" in (await rig.admission.review(request_of(web()))).message
    # The author has written this, so it is no secret; replaced, it would confirm a guess.
    rig = Rig(FakeDryRuns(DryRun(faults=(fails,))), hidden=hidden)
    assert "cannot read hunter2" in (await rig.admission.review(request_of(web()))).message


async def test_a_text_is_not_shown_where_there_are_too_many_secrets_to_search_for() -> None:
    found = DryRun(faults=(fault("cannot read hunter2"),))
    lines = "\n".join(f"{number:05}" for number in range(MOST_WORDS + 1))
    large = {**web(), "kind": "Secret", "data": {"key": base64.b64encode(lines.encode()).decode()}}

    for rig, resource in ((Rig(FakeDryRuns(found), hidden=lambda _: None), web()), (Rig(FakeDryRuns(found)), large)):
        answer = await rig.admission.review(request_of(resource))
        assert not answer.allowed
        assert "hunter2" not in answer.message
        assert "not shown" in answer.message


async def test_secrets_are_searched_for_in_a_worker_thread() -> None:
    threads: list[int] = []

    def hidden(_namespace: str) -> frozenset[str]:
        threads.append(threading.get_ident())
        return frozenset({"hunter2"})

    answer = await Rig(FakeDryRuns(DryRun(faults=(fault("bad hunter2"),))), hidden=hidden).admission.review(
        request_of(web())
    )

    assert "<secret>" in answer.message
    assert threads
    assert threading.get_ident() not in threads


async def test_field_that_is_rejected_is_named_and_nothing_of_a_secret() -> None:
    rig = Rig(FakeDryRuns(DryRun(faults=(fault("url_path: the value contains a space at character 3"),))))
    broken = {**web(), "spec": {"defaultBackend": {"path": "/a b"}}}
    secret = {"kind": "Secret", "metadata": {"name": "web", "namespace": "default"}, "stringData": {"a": "/a b"}}

    named = await rig.admission.review(request_of(broken))
    unnamed = await rig.admission.review(request_of({**secret, "apiVersion": "v1"}))

    assert 'spec.defaultBackend.path: "/a b" contains a space at character 3' in named.message
    assert "stringData" not in unnamed.message
