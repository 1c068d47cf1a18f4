"""People see the first quarantined objects and warnings, with their reasons and without Secrets."""

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Place
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
        ObjectProblem(
            object="Ingress default/w0", reason="Quarantined", problem="bad value [map:3]", serving="nothing"
        ),
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

    assert {one.problem for one in found.listed} == {"the word *** [map:3]"}
    assert len(cleaned) == 2


def test_file_of_a_manifest_comes_first() -> None:
    quarantine = Quarantine()
    problem = Problem(message="bad value", source="site/shop.yaml", line=3, path="spec.host")
    quarantine.update((Rejection("paths", Subject("Ingress", "default", "w"), problem),))
    quarantine.warnings = (ObjectWarning(Subject("Ingress", "default", "web"), "PortNotFound", "no port grpc"),)

    listed = Summaries(lambda: quarantine, str, lambda _ref: Place("site/web.yaml", 8)).latest().listed

    assert [one.problem for one in listed] == [
        "site/shop.yaml:3: spec.host: bad value",
        "site/web.yaml:8: no port grpc",
    ]


def test_summary_between_two_iterations_is_empty() -> None:
    assert Summaries(lambda: None, str).latest().listed == ()
