"""A verdict rejects an object only for faults that the object causes, and names them."""

from functools import partial

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.review.dry_run import DryRun
from haptic_trio.templating.values.subjects import ObjectWarning, Subject
from haptic_trio.webhook.review import MOST_WARNINGS, Answer
from haptic_trio.webhook.verdict import MOST_FAULTS, judge
from tests.webhook.builders import fault

REF = ResourceRef("Ingress", "default", "web")


def answer(found: DryRun, operation: str = "CREATE") -> Answer:
    return judge(REF, operation, found, str, str)


def test_nothing_wrong_is_nothing_to_say() -> None:
    assert answer(DryRun()) == Answer()


def test_a_fault_of_the_object_rejects_it_by_name() -> None:
    given = answer(DryRun(faults=(fault("a path must begin with /"),)))

    assert not given.allowed
    assert given.message == "Ingress default/web cannot be served: a path must begin with /"


def test_line_of_the_configuration_is_named() -> None:
    given = answer(DryRun(faults=(fault("unknown keyword 'x'", phase="parse", line=12),)))

    assert "unknown keyword 'x' (line 12 of the resulting haproxy.cfg)" in given.message


def test_equal_reasons_of_several_fragments_are_reported_once_and_several_reasons_as_a_list() -> None:
    given = answer(DryRun(faults=(fault("one"), fault("one"), fault("two"))))

    assert given.message.splitlines()[1:] == ["- one", "- two"]


def test_neighbour_in_the_same_namespace_that_breaks_by_it_rejects() -> None:
    given = answer(DryRun(faults=(fault("no", "Service", "shop"),)))

    assert not given.allowed
    assert "Service default/shop could no longer be served: no" in given.message


def test_others_cannot_veto() -> None:
    given = answer(DryRun(faults=(fault("no", "Ingress", "shop", namespace="elsewhere"),)))

    assert given.allowed
    assert "Ingress elsewhere/shop could no longer be served" in given.warnings[0]


def test_reason_of_an_object_in_another_namespace_is_not_shown() -> None:
    found = DryRun(
        faults=(fault("url_path: /their/path", "Ingress", "shop", namespace="elsewhere", phase="check", line=3),)
    )

    for operation in ("CREATE", "DELETE"):
        assert answer(found, operation).warnings == ("Ingress elsewhere/shop could no longer be served",)


def test_only_texts_that_are_shown_are_cleaned() -> None:
    subject = Subject("Ingress", "default", "web")
    found = DryRun(
        warnings=tuple(ObjectWarning(subject, "X", str(number)) for number in range(1000)),
        faults=tuple(fault(str(number), name=f"i{number}") for number in range(1000)),
    )
    cleaned: list[str] = []

    def clean(text: str) -> str:
        cleaned.append(text)
        return text

    for operation in ("CREATE", "UPDATE", "DELETE"):
        cleaned.clear()
        judge(REF, operation, found, clean, clean)
        assert len(cleaned) <= MOST_WARNINGS + MOST_FAULTS


def test_what_would_stop_everything_rejects() -> None:
    given = answer(DryRun(faults=(fault("no", kind=""),)))

    assert not given.allowed
    assert "the complete configuration would be invalid: no" in given.message


def test_broken_object_may_be_touched_while_it_is_broken_for_the_same_reason() -> None:
    same = answer(DryRun(faults=(fault("old", known=True),)), "UPDATE")
    other = answer(DryRun(faults=(fault("old", known=True), fault("new"))), "UPDATE")

    assert same.allowed
    assert "rejected already before this change: old" in same.warnings[0]
    assert not other.allowed
    assert "new" in other.message


@given(
    faults=st.lists(
        st.builds(
            fault,
            st.sampled_from(["a", "b"]),
            st.sampled_from(["Ingress", "Service", ""]),
            st.sampled_from(["web", "shop"]),
            namespace=st.sampled_from(["default", "elsewhere"]),
            known=st.booleans(),
        )
    )
)
def test_deletions_are_allowed_and_known_faults_reject_nothing(faults: list) -> None:  # type: ignore[type-arg]
    assert answer(DryRun(faults=tuple(faults)), "DELETE").allowed
    assert answer(DryRun(faults=tuple(one for one in faults if one.is_known))).allowed


def test_warnings_about_objects_of_the_namespace_are_warnings_and_no_others() -> None:
    own = ObjectWarning(Subject("Ingress", "default", "web"), "HostPathConflict", "an entry has no effect")
    other = ObjectWarning(Subject("Ingress", "elsewhere", "shop"), "HostPathConflict", "an entry has no effect")

    assert answer(DryRun(warnings=(own, other))).warnings == ("Ingress default/web: an entry has no effect",)


def test_a_missing_check_by_haproxy_is_a_warning() -> None:
    given = answer(DryRun(unchecked="there are more than 250 certificates"))

    assert given.allowed
    assert given.warnings == ("Ingress default/web was not checked by HAProxy: there are more than 250 certificates",)


def test_every_text_of_a_fault_is_cleaned() -> None:
    def clean(text: str) -> str:
        return text.replace("hunter2", "<secret>")

    found = DryRun(
        faults=(fault("bad hunter2"), fault("bad hunter2", "Service", "s", namespace="other")),
        warnings=(ObjectWarning(Subject("Ingress", "default", "web"), "X", "hunter2"),),
        unchecked="hunter2",
    )

    for operation in ("CREATE", "DELETE"):
        given = judge(REF, operation, found, clean, clean)
        assert "hunter2" not in given.message + "".join(given.warnings)


def test_field_of_the_object_is_named_and_of_no_other_object() -> None:
    found = DryRun(faults=(fault("url_path: no"), fault("url_path: no", "Service", "shop")))

    given = judge(REF, "CREATE", found, str, str, partial(msgspec.structs.replace, path="spec.path", message="no"))

    assert "- spec.path: no\n" in given.message
    assert given.message.endswith("Service default/shop could no longer be served: url_path: no")


def test_fields_are_searched_only_for_reported_faults() -> None:
    asked: list[str] = []

    def find(problem: Problem) -> Problem:
        asked.append(problem.message)
        return problem

    given = judge(REF, "CREATE", DryRun(faults=tuple(fault(f"no {n}") for n in range(1000))), str, str, find)

    assert given.message.endswith("and 990 more")
    assert len(asked) == 10
