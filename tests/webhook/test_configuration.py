"""The controller's own ConfigMap: what would not become the configuration is rejected, and nothing else."""

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from prometheus_client import CollectorRegistry

from haptic_trio import __version__
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.metrics import Families
from haptic_trio.pipeline.review.dry_run_object import DryRunError
from haptic_trio.webhook.admission import Admission, AdmissionLimits
from haptic_trio.webhook.configuration import VERSION_LABEL, ConfigurationReviews
from haptic_trio.webhook.metrics import WebhookMetrics
from haptic_trio.webhook.review import Answer, Request, ResourceId

CONFIG_MAPS = ResourceId("", "v1", "configmaps")


def config_map(text: str = "a", name: str = "haptic-trio", **labels: str) -> Resource:
    """Return a ConfigMap with *text* as its configuration."""
    metadata = {"name": name, "namespace": "edge", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config": text}}


def request_of(wanted: Resource | None, old: Resource | None = None) -> Request:
    """Return the request to have *wanted* in the place of *old*."""
    operation = "DELETE" if wanted is None else "UPDATE" if old else "CREATE"
    return Request(
        uid="u",
        resource=CONFIG_MAPS,
        name="haptic-trio",
        namespace="edge",
        operation=operation,
        object=wanted,
        old_object=old,
    )


class Checks:
    """Says what a test wants it to."""

    def __init__(self, *problems: Problem, error: Exception | None = None) -> None:
        self.problems = problems
        self.error = error
        self.asked: list[Resource] = []

    def __call__(self, found: Resource) -> tuple[Problem, ...]:
        """Return the problems."""
        self.asked.append(found)
        if self.error is not None:
            raise self.error
        return self.problems


def admission_of(check: Callable[[Resource], tuple[Problem, ...]], **limits: Any) -> Admission:
    return Admission(
        lambda: None,
        WebhookMetrics(Families(CollectorRegistry())),
        limits=AdmissionLimits(**limits),
        configuration=ConfigurationReviews("edge", "haptic-trio", check),
    )


async def answer_to(request: Request, check: Checks) -> Answer:
    return await admission_of(check).review(request)


async def test_good_configuration_passes_though_nothing_serves_yet() -> None:
    assert await answer_to(request_of(config_map("b"), config_map("a")), Checks()) == Answer()


async def test_each_problem_is_reported_with_its_place() -> None:
    own = Problem(message="unknown field", source="ConfigMap edge/haptic-trio", line=3, column=5, path="a.b", hint="x")
    other = Problem(message="no", source="library base", line=7)

    given = await answer_to(request_of(config_map()), Checks(own, other))

    assert not given.allowed
    assert given.message.splitlines() == [
        "ConfigMap edge/haptic-trio is not a valid configuration:",
        "- line 3 of `config`: a.b: unknown field (x)",
        "- library base:7: no",
    ]


async def test_many_problems_are_reported_as_some_and_a_number() -> None:
    given = await answer_to(request_of(config_map()), Checks(*(Problem(message=f"no {n}") for n in range(25))))

    assert given.message.endswith("- and 15 more")


async def test_an_unchanged_content_is_not_reviewed() -> None:
    check = Checks(Problem(message="no"))

    given = await answer_to(request_of(config_map("a", owner="me"), config_map("a")), check)

    assert given.allowed
    assert check.asked == []


@pytest.mark.parametrize("operation", ["another name", "another namespace", "another kind"])
async def test_other_objects_are_none_of_its_business(operation: str) -> None:
    check = Checks(Problem(message="no"))
    wanted = config_map(name="other" if operation == "another name" else "haptic-trio")
    if operation == "another namespace":
        wanted["metadata"]["namespace"] = "other"
    request = request_of(wanted)
    if operation == "another kind":
        request = msgspec.structs.replace(request, resource=ResourceId("", "v1", "secrets"))

    assert (await answer_to(request, check)).allowed
    assert check.asked == []


async def test_deletion_passes_with_a_warning() -> None:
    given = await answer_to(request_of(None, config_map()), Checks(Problem(message="no")))

    assert given.allowed
    assert "no controller can start without this ConfigMap" in given.warnings[0]


async def test_configuration_for_another_version_is_accepted_without_review() -> None:
    check = Checks(Problem(message="no"))

    other = await answer_to(request_of(config_map(**{VERSION_LABEL: "99.0"})), check)
    same = await answer_to(request_of(config_map(**{VERSION_LABEL: __version__})), check)

    assert other.allowed
    assert "it is for haptic-trio 99.0" in other.warnings[0]
    assert not same.allowed


async def test_an_impossible_review_accepts_the_object() -> None:
    given = await answer_to(request_of(config_map()), Checks(error=DryRunError("haptic-trio is not ready")))

    assert given.allowed
    assert "haptic-trio is not ready" in given.warnings[0]


async def test_configuration_that_takes_too_long_passes_and_only_one_is_at_work_until_it_ends() -> None:
    release = threading.Event()
    working: list[int] = []

    def check(_found: Resource) -> tuple[Problem, ...]:
        working.append(1)
        release.wait(20)
        return ()

    admission = admission_of(check, configuration=0.05)
    try:
        for _ in range(3):
            given = await admission.review(request_of(config_map()))
            assert given.allowed
            assert "review took longer than 0.05 s" in given.warnings[0]
        assert len(working) == 1
    finally:
        release.set()
    with trio.fail_after(10):
        while (await admission.review(request_of(config_map()))).warnings:
            pass
