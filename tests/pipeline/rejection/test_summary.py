"""People see the first quarantined objects and warnings, with their reasons and without Secrets."""

from haptic_trio.errors import Problem
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.rejection.summary import ObjectProblem, Summaries
from haptic_trio.templating.values.subjects import ObjectWarning, Rejection, Subject


def quarantined(count: int, message: str = "bad value") -> Quarantine:
    """Return a quarantine with *count* Ingresses."""
    quarantine = Quarantine()
    problem = Problem(message=message, source="map", line=3, subject="Ingress default/x")
    rejections = [Rejection("paths", Subject("Ingress", "default", f"w{number}"), problem) for number in range(count)]
    quarantine.update(tuple(rejections))
    return quarantine


def test_summary_lists_quarantined_objects_and_warnings() -> None:
    quarantine = quarantined(1)
    quarantine.warnings = (ObjectWarning(Subject("Ingress", "default", "web"), "PortNotFound", "no port grpc"),)

    found = Summaries(lambda: quarantine, str).latest()

    assert (found.quarantined, found.warnings, found.more) == (1, 1, 0)
    assert found.listed == (
        ObjectProblem(object="Ingress default/w0", reason="Quarantined", problem="map:3: bad value", serving="nothing"),
        ObjectProblem(object="Ingress default/web", reason="PortNotFound", problem="no port grpc"),
    )


def test_summary_is_limited_and_counts_the_others() -> None:
    quarantine = quarantined(5000)

    found = Summaries(lambda: quarantine, str).latest(20)

    assert (found.quarantined, len(found.listed), found.more) == (5000, 20, 4980)


def test_texts_are_cleaned_once() -> None:
    quarantine, cleaned = quarantined(2, "the word hidden"), list[str]()

    def clean(text: str) -> str:
        cleaned.append(text)
        return text.replace("hidden", "***")

    summaries = Summaries(lambda: quarantine, clean)
    summaries.latest()
    found = summaries.latest()

    assert {one.problem for one in found.listed} == {"map:3: the word ***"}
    assert len(cleaned) == 2


def test_summary_between_two_iterations_is_empty() -> None:
    assert Summaries(lambda: None, str).latest().listed == ()
