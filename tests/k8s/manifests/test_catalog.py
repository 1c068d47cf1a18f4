import uuid
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.errors import Problem
from haptic_trio.k8s.manifests.catalog import Catalog, FileContent, Manifest, Outcome, fill_in
from haptic_trio.k8s.manifests.objects import LocatedResource, read_manifests
from haptic_trio.k8s.resource import Resource, ref_of
from tests.k8s.objects import INGRESSES, SERVICES, service_manifest

GRACE = 0.1
BROKEN = Problem(message="broken")


def content(path: str, *texts: str, problems: tuple[Problem, ...] = ()) -> FileContent:
    located, found = read_manifests("---\n".join(texts), path)
    manifests = tuple(fill_in(each) for each in located)
    return FileContent(path=path, manifests=manifests, problems=tuple(found) + problems)


def filled(resource: Resource) -> Manifest:
    return fill_in(LocatedResource(resource, "x", 1))


def update(catalog: Catalog, *contents: FileContent, gone: tuple[str, ...] = (), now: float = 0.0) -> Outcome:
    return catalog.update(contents, gone, now)


def kinds_of(outcome: Outcome) -> list[tuple[str, str]]:
    """Return each change as what happened and the object's name."""
    described = []
    for change in outcome.changes:
        shown = change.new or change.old
        assert shown is not None
        what = "deleted" if change.new is None else "added" if change.old is None else "changed"
        described.append((what, shown["metadata"]["name"]))
    return described


def port_of(catalog: Catalog, name: str) -> int | None:
    found = catalog.find(SERVICES, "default", name)
    return None if found is None else found["spec"]["ports"][0]["port"]


def test_what_a_cluster_would_fill_in_is_filled_in() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", service_manifest("a")))

    found = catalog.find(SERVICES, "default", "a")

    assert found is not None
    metadata = found["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"] == "9999-12-31T23:59:59Z"
    assert metadata["generation"] == 1
    assert metadata["resourceVersion"]
    assert metadata["uid"] == str(uuid.uuid5(uuid.NAMESPACE_URL, "haptic-trio//Service/default/a"))


def test_what_the_manifest_says_is_kept_except_the_version() -> None:
    catalog = Catalog(GRACE)
    given_metadata = "  uid: u\n  generation: 7\n  creationTimestamp: '2020-01-01T00:00:00Z'\n  resourceVersion: '99'\n"
    update(catalog, content("a.yaml", service_manifest("a", extra=given_metadata)))

    found = catalog.find(SERVICES, "default", "a")

    assert found is not None
    metadata = found["metadata"]
    assert (metadata["uid"], metadata["generation"]) == ("u", 7)
    assert metadata["creationTimestamp"] == "2020-01-01T00:00:00Z"
    assert metadata["resourceVersion"] != "99"


def test_kinds_of_the_cluster_have_no_namespace() -> None:
    metadata: dict[str, Any] = {"name": "a", "namespace": "x", "labels": None}

    manifest = filled({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": metadata})

    assert manifest.key == ("networking.k8s.io", "IngressClass", "", "a")
    assert manifest.resource["metadata"] == {"name": "a"}


def test_only_a_change_of_content_makes_a_new_version() -> None:
    catalog = Catalog(GRACE)
    first = update(catalog, content("a.yaml", service_manifest("a"), service_manifest("b")))
    again = update(catalog, content("a.yaml", "# moved\n" + service_manifest("a"), service_manifest("b", port=81)))

    assert kinds_of(first) == [("added", "a"), ("added", "b")]
    assert kinds_of(again) == [("changed", "b")]
    (change,) = again.changes
    assert change.old is not None
    assert change.new is not None
    old, new = change.old["metadata"], change.new["metadata"]
    assert int(new["resourceVersion"]) > int(old["resourceVersion"])
    assert (old["generation"], new["generation"]) == (1, 2)
    assert old["uid"] == new["uid"]
    assert old["creationTimestamp"] == new["creationTimestamp"]


def test_a_change_of_metadata_alone_is_not_a_new_generation() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", service_manifest("a")))
    (change,) = update(catalog, content("a.yaml", service_manifest("a", extra="  labels: {x: v}\n"))).changes

    assert change.new is not None
    assert change.new["metadata"]["generation"] == 1


def test_an_object_outlives_its_file_by_the_grace() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", service_manifest("a")))

    assert not update(catalog, gone=("a.yaml",), now=1.0).changes
    assert catalog.next_expiry == 1.0 + GRACE
    assert not update(catalog, now=1.05).changes
    assert kinds_of(update(catalog, now=1.1)) == [("deleted", "a")]
    assert not catalog.next_expiry
    assert list(catalog.select(SERVICES)) == []


def test_an_object_that_reappears_within_the_grace_has_not_been_away() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", service_manifest("a"), service_manifest("b")))
    update(catalog, gone=("a.yaml",), now=1.0)

    back = update(catalog, content("a.yaml", service_manifest("a"), service_manifest("b", port=81)), now=1.05)

    assert kinds_of(back) == [("changed", "b")]
    assert not update(catalog, now=5.0).changes


def test_an_object_may_move_to_another_file() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", service_manifest("a")))
    update(catalog, content("a.yaml"), now=1.0)
    moved = update(catalog, content("b.yaml", service_manifest("a")), now=1.01)

    assert not moved.changes
    assert not moved.reports
    assert not update(catalog, now=5.0).changes
    assert port_of(catalog, "a") == 80


def test_a_file_with_a_problem_keeps_the_last_good_version_of_what_it_does_not_show() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", service_manifest("a"), service_manifest("b")))

    broken = update(catalog, content("a.yaml", "kind: [\n", service_manifest("b", port=81)), now=1.0)

    assert kinds_of(broken) == [("changed", "b")]
    assert not update(catalog, now=9.0).changes
    assert port_of(catalog, "a") == 80
    ((path, problems),) = broken.reports
    assert path == "a.yaml"
    assert problems[0].line == 2


def test_a_corrected_file_is_reported_as_solved_once() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", problems=(BROKEN,)))

    assert not update(catalog, content("a.yaml", problems=(BROKEN,))).reports
    assert update(catalog, content("a.yaml", service_manifest("a"))).reports == (("a.yaml", ()),)
    assert not update(catalog, content("a.yaml", service_manifest("b"))).reports


def test_a_file_that_is_gone_has_no_problems() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", problems=(BROKEN,)))

    assert update(catalog, gone=("a.yaml",)).reports == (("a.yaml", ()),)


def test_a_claim_that_was_leaving_stays_if_its_file_turns_out_to_be_half_written() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", service_manifest("a")))
    update(catalog, content("a.yaml"), now=1.0)
    update(catalog, content("a.yaml", "kind: ["), now=1.05)

    assert not update(catalog, now=9.0).changes
    assert port_of(catalog, "a") == 80

    # The grace restarts when it leaves again.
    update(catalog, content("a.yaml"), now=10.0)
    assert not update(catalog, now=10.05).changes
    assert kinds_of(update(catalog, now=10.1)) == [("deleted", "a")]


def test_of_duplicates_the_first_by_file_and_line_counts_and_the_others_are_reported() -> None:
    catalog = Catalog(GRACE)
    late = update(catalog, content("b.yaml", service_manifest("a", port=2), service_manifest("a", port=3)))

    assert port_of(catalog, "a") == 2
    ((path, (problem,)),) = late.reports
    assert path == "b.yaml"
    assert problem.line == 9
    assert problem.message == "defined already in b.yaml:1"
    assert problem.subject == "Service default/a"

    early = update(catalog, content("a.yaml", service_manifest("a", port=1)))

    assert port_of(catalog, "a") == 1
    ((path, problems),) = early.reports
    assert path == "b.yaml"
    assert [problem.message for problem in problems] == ["defined already in a.yaml:1"] * 2


def test_a_duplicate_takes_over_when_the_first_one_is_gone_for_the_grace() -> None:
    catalog = Catalog(GRACE)
    update(catalog, content("a.yaml", service_manifest("a", port=1)), content("b.yaml", service_manifest("a", port=2)))

    gone = update(catalog, gone=("a.yaml",), now=1.0)

    assert not gone.changes
    assert gone.reports == (("b.yaml", ()),)
    assert kinds_of(update(catalog, now=1.2)) == [("changed", "a")]
    assert port_of(catalog, "a") == 2


def test_the_same_name_in_another_group_is_another_object() -> None:
    catalog = Catalog(GRACE)
    other = service_manifest("a").replace("apiVersion: v1", "apiVersion: serving.knative.dev/v1")

    outcome = update(catalog, content("a.yaml", service_manifest("a"), other))

    assert kinds_of(outcome) == [("added", "a"), ("added", "a")]
    assert not outcome.reports


def test_another_version_of_the_api_is_listed_as_that() -> None:
    catalog = Catalog(GRACE)
    old = "apiVersion: networking.k8s.io/v1beta1\nkind: Ingress\nmetadata: {name: a}\n"
    update(catalog, content("a.yaml", old))
    assert list(catalog.select(INGRESSES)) == []

    update(catalog, content("a.yaml", old.replace("v1beta1", "v1")))

    assert [ref_of(resource).name for resource in catalog.select(INGRESSES)] == ["a"]


files = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.lists(st.tuples(st.sampled_from("pqr"), st.integers(1, 3)), max_size=3),
)


@given(st.lists(st.tuples(files, st.sets(st.sampled_from(["a", "b", "c"])), st.floats(0, 0.2)), max_size=6))
def test_once_the_grace_is_over_the_objects_are_those_of_the_files_and_changes_add_up(
    history: list[tuple[dict[str, list[tuple[str, int]]], set[str], float]],
) -> None:
    catalog = Catalog(GRACE)
    now = 0.0
    on_disk: dict[str, list[tuple[str, int]]] = {}
    reported: dict[str, int] = {}

    def follow(outcome: Outcome) -> None:
        for change in outcome.changes:
            if change.new is None:
                assert change.old is not None
                del reported[change.old["metadata"]["name"]]
            else:
                reported[change.new["metadata"]["name"]] = change.new["spec"]["ports"][0]["port"]

    for written, removed, passed in history:
        now += passed
        on_disk |= written
        gone = removed - written.keys()
        on_disk = {path: documents for path, documents in on_disk.items() if path not in gone}
        contents = [
            content(path, *(service_manifest(*each) for each in each_file)) for path, each_file in written.items()
        ]
        follow(catalog.update(contents, gone, now))
    follow(catalog.update((), (), now + 1))

    expected: dict[str, int] = {}
    for path in sorted(on_disk):
        for name, port in on_disk[path]:
            expected.setdefault(name, port)
    assert reported == expected
    assert {name: port_of(catalog, name) for name in expected} == expected
    assert catalog.next_expiry is None
