"""An object whose content may be elsewhere reads as the object, or not at all."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from haptic_trio.templating.deferred import Deferred, NotFetchedError
from haptic_trio.templating.engine import Engine, RenderError
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.values.faults import ContentUnavailableError
from haptic_trio.templating.views import ResourcesView

WHOLE = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "a",
        "namespace": "x",
        "resourceVersion": "5",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "web"},
    },
    "type": "Opaque",
    "data": {"key": "value"},
}


class Shelf:
    """A keeper of one kind; what is in `contents` is here."""

    name = "secrets"

    def __init__(self, *wholes: Mapping[str, Any]) -> None:
        self.objects = [Deferred(self, whole, str(whole["metadata"]["resourceVersion"])) for whole in wholes]
        self.contents: dict[str, Mapping[str, Any]] = {}
        self.failing: set[str] = set()
        self.wanted: list[str] = []

    def content_of(self, deferred: Deferred) -> Mapping[str, Any] | None:
        if deferred.name in self.failing:
            raise ContentUnavailableError(f"{deferred!r} is not to be had")
        return self.contents.get(deferred.name)

    def want(self, deferred: Deferred) -> bool:
        if deferred.name in self.wanted or deferred.name in self.contents:
            return False
        self.wanted.append(deferred.name)
        return True

    def list(self) -> Sequence[Any]:
        return self.objects

    def get(self, *keys: str) -> Sequence[Any]:
        return [each for each in self.objects if (each.namespace, each.name)[: len(keys)] == keys]

    def get_single(self, *keys: str) -> Any | None:
        return next(iter(self.get(*keys)), None)


def whole(name: str, namespace: str = "x", **fields: Any) -> dict[str, Any]:
    metadata = {**WHOLE["metadata"], "name": name, "namespace": namespace}  # type: ignore[dict-item]
    return {**WHOLE, "metadata": metadata, **fields}


def test_identity_is_there_and_everything_else_is_not() -> None:
    shelf = Shelf(WHOLE)
    (deferred,) = shelf.objects
    metadata = deferred["metadata"]
    assert deferred
    assert metadata
    assert (deferred["kind"], deferred["apiVersion"]) == ("Secret", "v1")
    assert [metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")] == ["a", "x", "u", "5"]
    assert metadata.get("creationTimestamp") == "2026-01-01T00:00:00Z"
    for use in (
        lambda: deferred["data"],
        lambda: deferred.get("data"),
        lambda: "data" in deferred,
        lambda: list(deferred),
        lambda: len(deferred),
        lambda: deferred == WHOLE,
        lambda: metadata["labels"],
        lambda: metadata.get("labels", {}),
        lambda: dict(metadata),
    ):
        with pytest.raises(NotFetchedError, match="Secret x/a has not been fetched") as caught:
            use()
        assert caught.value.deferred is deferred
    # It is not requested outside of a render.
    assert shelf.wanted == []


def test_fields_that_the_identity_lacks_are_absent() -> None:
    (deferred,) = Shelf({"kind": "Node", "metadata": {"name": "n", "resourceVersion": "1"}}).objects
    assert "uid" not in deferred["metadata"]
    assert deferred["metadata"].get("namespace", "none") == "none"
    assert repr(deferred) == "Node n"


def test_what_was_fetched_reads_as_the_object_in_the_version_that_is_known() -> None:
    shelf = Shelf(WHOLE)
    (deferred,) = shelf.objects
    newer = whole("a")
    newer["metadata"]["resourceVersion"] = "6"
    shelf.contents["a"] = newer
    assert deferred == WHOLE
    assert dict(deferred["metadata"]) == WHOLE["metadata"]
    assert len(deferred["metadata"]) == 6
    assert list(deferred) == list(WHOLE)
    assert deferred != {**WHOLE, "type": "other"}


def test_two_are_equal_if_they_are_the_same_version_of_the_same_object() -> None:
    shelf = Shelf(WHOLE, WHOLE, whole("b"))
    one, same, other = shelf.objects
    assert one == same
    assert one["metadata"] == same["metadata"]
    assert one != other
    with pytest.raises(TypeError):
        hash(one)


class Site:
    """One template over one shelf."""

    def __init__(self, source: str, *wholes: Mapping[str, Any]) -> None:
        self.engine = Engine({"main": source})
        self.shelf = Shelf(*wholes)
        self.run = self.engine.start_run()
        self.context = {"resources": ResourcesView({"secrets": self.shelf})}

    def render(self) -> str:
        for question in list(self.run.unanswered):
            del self.run.unanswered[question]
            self.run.touch(question)
        return self.engine.render("main", self.context, self.run).text

    def fetch(self) -> list[str]:
        """Bring what is wanted; return its names."""
        wanted, self.shelf.wanted = self.shelf.wanted, []
        self.shelf.contents |= {name: whole(name) for name in wanted}
        return wanted


def test_fragments_that_lack_something_note_it_and_alone_are_rendered_again() -> None:
    site = Site(
        "{% each s in resources.secrets as 'f' %}{% if s.metadata.name != 'b' %}{{ s.type }}{% endif %} {% endeach %}",
        whole("a"),
        whole("b"),
        whole("c"),
    )
    site.render()
    assert site.fetch() == ["a", "c"]
    before = site.run.rendered
    assert site.render() == "Opaque  Opaque "
    assert site.run.rendered - before == 2
    assert site.run.unanswered == {}
    assert site.run.rejections == ()


ONE = "{% each s in resources.secrets if s.metadata.name == 'a' %}"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("{% for s in resources.secrets.list() %}{{ s.type }}{% endfor %}", ["a", "b", "c"]),
        ("{% for s in resources.secrets.get('x') %}{{ s.type }}{% endfor %}", ["a", "b"]),
        ("{{ resources.secrets.list() | length }}{{ resources.secrets.get_single('x', 'b').type }}", ["b"]),
        (
            "{% for s in resources.secrets.list() %}{% fragment 'f' for s %}{{ s.type }}{% endfragment %}{% endfor %}",
            ["a", "b", "c"],
        ),
        # Within a fragment a list of everything is one more question, not a wish for all of it.
        (
            ONE + "{{ resources.secrets.list() | length }}{{ s.type }}{% endeach %}",
            ["a"],
        ),
        (
            ONE + "{{ resources.secrets.get('x')[1].type }}{% endeach %}",
            ["b", "a"],
        ),
    ],
)
def test_what_was_found_together_is_wanted_together(source: str, wanted: list[str]) -> None:
    site = Site(source, whole("a"), whole("b"), whole("c", namespace="y"))
    # Outside of fragments the render fails.
    with suppress(RenderError):
        site.render()
    assert site.fetch() == wanted
    assert "Opaque" in site.render()
    assert site.shelf.wanted == []


def test_what_is_not_to_be_had_fails_its_fragments_until_it_is() -> None:
    site = Site("{% each s in resources.secrets as 'f' %}{{ s.type }} {% endeach %}", whole("a"), whole("b"))
    site.shelf.contents = {"a": whole("a"), "b": whole("b")}
    site.shelf.failing.add("a")
    assert site.render() == "Opaque "
    (rejection,) = site.run.rejections
    assert (rejection.subject.name, rejection.problem.message) == ("a", "Secret x/a is not to be had")
    assert site.run.unanswered == {("object", "secrets", "x", "a", "Secret"): True}
    assert site.shelf.wanted == []
    site.shelf.failing.clear()
    assert site.render() == "Opaque Opaque "


def test_paths_look_into_what_was_fetched() -> None:
    source = (
        "{% each s in resources.secrets as 'f' %}{{ s | dig('data.key') }} {{ s | dig('metadata.labels.app') }} "
        "{{ s | dig('data.*') }} {{ s | dig(\"$[?@.key == 'value'].key\") }} {{ s | dig('data.none', 'none') }}"
        "{% endeach %}"
    )
    site = Site(source, WHOLE)
    site.render()
    site.fetch()
    assert site.render() == "value web value value none"


def test_an_object_that_changes_order_takes_its_place_once_that_is_known() -> None:
    site = Site("{% each s in resources.secrets as 'f' by 'type' %}{{ s.metadata.name }} {% endeach %}")
    shelf = site.shelf

    def put(name: str, kind: str) -> None:
        found = whole(name, type=kind)
        shelf.objects = [each for each in shelf.objects if each.name != name] + [Deferred(shelf, found, kind)]
        shelf.contents.pop(name, None)
        take_changes(site.run, {"secrets": Touched([], {("x", name, "Secret"): shelf.objects[-1]})})
        site.render()
        shelf.wanted.clear()
        shelf.contents[name] = found

    for name, kind in (("a", "3"), ("b", "1"), ("c", "2")):
        put(name, kind)
    assert site.render() == "b c a "
    put("b", "4")
    assert site.render() == "c a b "
    assert site.run.rejections == ()
