"""Turns that are rendered before a change is taken in: nothing of it shows, and only what is still right is used."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.incremental.ahead import Change, dependents_of
from haptic_trio.templating.incremental.each import render_ahead
from haptic_trio.templating.incremental.recorder import CURRENT
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.views import ResourcesView, answers_from, showing
from tests.k8s.objects import service, service_ref

BY_NAME = ["metadata.namespace", "metadata.name"]
TEMPLATE = (
    "{% each u in resources.users %}{{ u.metadata.name }}:"
    "{% for s in resources.services.get('default', u.spec.service) %}{{ s.spec.n }}{% endfor %} {% endeach %}"
)
PARTS = (
    "{% each u in resources.users %}{{ u.metadata.name }}:"
    "{{ resources.services.pick('spec.n', 'default', u.spec.service) | join }} {% endeach %}"
)


class Site:
    """Users of a Service, one turn for each."""

    def __init__(self, template: str = TEMPLATE, users: str = "abc") -> None:
        self.engine = Engine({"main": template})
        self.stores = {name: Store(name, BY_NAME) for name in ("users", "services")}
        self.trackers = {name: store.track() for name, store in self.stores.items()}
        self.run = self.engine.start_run()
        self.views = ResourcesView(self.stores)
        self.context: dict[str, Any] = {"resources": self.views}
        self.put("services", "s", n=1)
        for name in users:
            self.put("users", name, service="s")

    def put(self, store: str, name: str, **spec: Any) -> None:
        self.stores[store].upsert(service(name, spec=spec))

    def render(self, *, is_released: bool = False) -> tuple[str, int]:
        """Return the text, and how many fragments were rendered; *is_released*: changes of Services are."""
        found: dict[str, Touched] = {}
        for name, tracker in self.trackers.items():
            touched, store = tracker.take(), self.stores[name]
            objects = {(ref.namespace, ref.name, ref.kind): store.by_ref(ref) for ref in touched}
            if touched:
                found[name] = Touched(set().union(*touched.values()), objects, answers_from(store.get))
        before = self.run.rendered
        released = {name: found.pop(name) for name in ("services",) if is_released and name in found}
        take_changes(self.run, found)
        if is_released:
            with self.run.ahead.releasing():
                take_changes(self.run, released)
        return self.engine.render("main", self.context, self.run).text, self.run.rendered - before

    @contextmanager
    def shown(self, version: Resource | None) -> Iterator[dict[str, Change]]:
        overlay = Overlay(self.stores["services"], {service_ref("s"): version})
        with showing(self.views["services"], overlay):
            yield {"services": Change(overlay.touched, answers_from(overlay.get))}

    def ahead(self, n: int, until: float = inf) -> int:
        """Render ahead for the Service with another number; return how many turns are left."""
        with self.shown(service("s", spec={"n": n})) as changes:
            token = CURRENT.set(self.run)
            try:
                return render_ahead(self.run, changes, until)
            finally:
                CURRENT.reset(token)


def test_nothing_shows_before_the_change_is_taken_in() -> None:
    for template in (TEMPLATE, PARTS):
        site = Site(template)
        assert site.render() == ("a:1 b:1 c:1 ", 3)

        assert site.ahead(2) == 0

        assert site.render() == ("a:1 b:1 c:1 ", 0)
        site.put("services", "s", n=2)
        assert site.render(is_released=True) == ("a:2 b:2 c:2 ", 0)


def test_a_step_renders_one_turn_at_least() -> None:
    site = Site()
    site.render()

    assert [site.ahead(2, until=0) for _step in range(4)] == [2, 1, 0, 0]
    assert len(site.run.ahead) == 3


def test_only_turns_with_another_answer_count() -> None:
    site = Site(PARTS)
    site.put("users", "d", service="other")
    site.render()

    with site.shown(service("s", spec={"n": 1, "more": 1})) as changes:
        assert dependents_of(site.run, changes) == {}
    with site.shown(service("s", spec={"n": 2})) as changes:
        assert [child.object_id[1] for child in dependents_of(site.run, changes)] == ["a", "b", "c"]
    with site.shown(None) as changes:
        assert len(dependents_of(site.run, changes)) == 3


def test_a_turn_whose_object_changes_renders_again() -> None:
    site = Site()
    site.render()
    site.ahead(2)

    site.put("users", "b", service="s", more=1)
    assert site.render() == ("a:1 b:1 c:1 ", 1)
    site.put("services", "s", n=2)

    assert site.render(is_released=True) == ("a:2 b:2 c:2 ", 1)


def test_an_object_that_changes_in_the_same_render_renders_again() -> None:
    site = Site()
    site.render()
    site.ahead(2)

    site.put("users", "b", service="other")
    site.put("services", "s", n=2)

    assert site.render(is_released=True) == ("a:2 b: c:2 ", 1)


def test_another_change_of_what_was_looked_up_drops_results() -> None:
    site = Site()
    site.render()
    site.ahead(2)

    site.put("services", "s", n=3)

    assert site.render() == ("a:3 b:3 c:3 ", 3)
    assert len(site.run.ahead) == 0


def test_a_lookup_that_only_the_result_made_counts() -> None:
    template = (
        "{% each u in resources.users %}{{ u.metadata.name }}:"
        "{% for s in resources.services.get('default', 's') %}{% if s.spec.n == 2 %}"
        "{% for o in resources.services.get('default', 'o') %}{{ o.spec.n }}{% endfor %}"
        "{% endif %}{% endfor %} {% endeach %}"
    )
    site = Site(template)
    site.put("services", "o", n=7)
    assert site.render() == ("a: b: c: ", 3)
    site.ahead(2)

    site.put("services", "o", n=8)
    assert site.render() == ("a: b: c: ", 3)
    site.put("services", "s", n=2)

    assert site.render(is_released=True) == ("a:8 b:8 c:8 ", 3)


def test_the_failure_of_a_turn_is_kept() -> None:
    template = (
        "{% each u in resources.users %}{{ u.metadata.name }}:"
        "{% for s in resources.services.get('default', 's') %}"
        "{{ fail('no') if s.spec.n == 2 and u.metadata.name == 'b' else s.spec.n }}{% endfor %} {% endeach %}"
    )
    site = Site(template)
    site.render()

    assert site.ahead(2) == 0
    assert not site.run.rejections
    assert site.render() == ("a:1 b:1 c:1 ", 0)

    site.put("services", "s", n=2)
    text, rendered = site.render(is_released=True)
    assert (text, rendered) == ("a:2 c:2 ", 0)
    (rejection,) = site.run.rejections
    assert rejection.subject.name == "b"


def test_a_turn_whose_inner_fragment_fails_is_left_to_the_render() -> None:
    template = (
        "{% each u in resources.users %}{{ u.metadata.name }}:"
        "{% for s in resources.services.get('default', 's') %}{% fragment 'inner' for u %}"
        "{{ fail('no') if s.spec.n == 2 and u.metadata.name == 'b' else s.spec.n }}"
        "{% endfragment %}{% endfor %} {% endeach %}"
    )
    site = Site(template)
    site.render()

    site.ahead(2)
    assert len(site.run.ahead) == 2
    assert site.render() == ("a:1 b:1 c:1 ", 0)

    site.put("services", "s", n=2)
    # The turn, and the fragment inside it.
    assert site.render(is_released=True) == ("a:2 b: c:2 ", 2)


def test_results_that_wait_are_not_those_of_the_present_objects() -> None:
    site = Site()
    site.render()
    site.ahead(2)

    site.run.touch_fragments({key for key in site.run.produced.snapshot() if key.name == "b"})
    assert site.render() == ("a:1 b:1 c:1 ", 1)
    site.put("services", "s", n=2)

    assert site.render(is_released=True) == ("a:2 b:2 c:2 ", 0)


def test_results_go_with_their_root() -> None:
    site = Site()
    site.render()
    site.ahead(2)

    site.context = {**site.context, "other": 1}
    assert site.render() == ("a:1 b:1 c:1 ", 3)
    site.put("services", "s", n=2)

    assert site.render(is_released=True) == ("a:2 b:2 c:2 ", 3)
