"""Lookups whose answer counts: their readers render again only when the answer changes."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Store
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.functions import GLOBALS
from haptic_trio.templating.incremental.dependencies import DependencyIndex
from haptic_trio.templating.incremental.records import Root
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.views import ResourcesView, answers_from
from tests.k8s.objects import service
from tests.templating.rendering import rejected, render

PICKING = (
    "{% each s in resources.services %}{{ s.metadata.name }}"
    "{{ resources.others.pick('data.a', 'default', s.spec.of) | join }} {% endeach %}"
)
HAVING = (
    "{% each s in resources.services %}{{ s.metadata.name }}"
    "{{ 'y' if resources.others.has('default', s.spec.of) else 'n' }} {% endeach %}"
)
BOTH = PICKING + HAVING


def config_map(name: str, **data: Any) -> Resource:
    return {"kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}, "data": data}


class Site:
    """A template over Services, and over the ConfigMaps that it asks about."""

    def __init__(self, source: str) -> None:
        self.engine = Engine({"main": source})
        self.stores = {name: Store(name, ["metadata.namespace", "metadata.name"]) for name in ("services", "others")}
        self.trackers = {name: store.track() for name, store in self.stores.items()}
        self.run = self.engine.start_run()
        self.context = {"resources": ResourcesView(self.stores)}

    def put(self, name: str, *, of: str) -> None:
        self.stores["services"].upsert(service(name, spec={"of": of}))

    def other(self, name: str, **data: Any) -> None:
        self.stores["others"].upsert(config_map(name, **data))

    def remove(self, name: str) -> None:
        self.stores["others"].delete(ref_of(config_map(name)))

    def render(self) -> str:
        changes = {}
        for name, store in self.stores.items():
            touched = self.trackers[name].take()
            objects = {(ref.namespace, ref.name, ref.kind): store.by_ref(ref) for ref in touched}
            changes[name] = Touched(set().union(*touched.values()), objects, answers_from(store.get))
        take_changes(self.run, changes)
        return self.engine.render("main", self.context, self.run).text.strip()

    def count(self) -> int:
        """Return how many fragments a render renders."""
        before = self.run.rendered
        self.render()
        return self.run.rendered - before


def test_other_parts_of_an_object_render_no_fragment_that_reads_one_part() -> None:
    site = Site(PICKING)
    site.other("x", a="1", b="1")
    for number in range(20):
        site.put(f"s{number:02}-", of="x")
    assert site.render().split()[0] == "s00-1"

    site.other("x", a="1", b="2")
    assert site.count() == 0
    site.other("x", a="2", b="2")
    assert site.count() == 20
    assert site.render().split()[-1] == "s19-2"
    site.other("x", a="2", b="3")
    assert site.count() == 0


def test_an_existence_lookup_renders_no_fragment_while_an_object_exists() -> None:
    site = Site(HAVING)
    site.put("s", of="x")
    assert site.render() == "sn"
    site.other("y")
    assert site.count() == 0
    site.other("x", a="1")
    assert site.render() == "sy"
    site.other("x", a="2")
    assert site.count() == 0
    site.remove("x")
    assert site.render() == "sn"


def test_what_went_and_came_between_two_renders_is_compared_with_what_was_answered() -> None:
    site = Site(PICKING)
    site.put("s", of="x")
    site.other("x", a="1")
    site.render()
    site.remove("x")
    site.other("x", a="1")
    assert site.count() == 0
    site.remove("x")
    assert site.count() == 1
    site.other("x", a="1")
    assert site.render() == "s1"


def test_nothing_is_remembered_for_those_that_ask_no_more() -> None:
    site = Site(BOTH)
    site.other("x", a="1")
    site.put("s", of="x")
    site.render()
    question = ("has", "others", "default", "x")
    assert question in site.run.index
    site.put("s", of="y")
    site.render()
    assert question not in site.run.index
    assert site.run.index.renew(question, lambda _aspect: None) == []
    site.other("x", a="2")
    assert site.count() == 0


def test_who_picks_one_part_is_not_rendered_for_what_others_pick() -> None:
    site = Site(PICKING + PICKING.replace("data.a", "data.b") + HAVING)
    site.other("x", a="1", b="1")
    site.put("s", of="x")
    site.render()
    site.other("x", a="1", b="2")
    assert site.count() == 1
    site.other("x", a="2", b="3")
    assert site.count() == 2
    site.remove("x")
    assert site.count() == 3


def test_a_part_is_looked_for_once_for_all_who_ask() -> None:
    asked: list[tuple[str, ...]] = []

    class Counting(Store):
        def get(self, *keys: str) -> Sequence[Resource]:
            asked.append(keys)
            return super().get(*keys)

    site = Site(PICKING)
    site.stores["others"] = Counting("others", ["metadata.namespace", "metadata.name"])
    site.trackers["others"] = site.stores["others"].track()
    site.context = {"resources": ResourcesView(site.stores)}
    site.other("x", a="1")
    for number in range(20):
        site.put(f"s{number}", of="x")
    site.render()
    assert asked == [("default", "x")]


def test_a_part_that_was_given_up_between_question_and_end_is_followed_all_the_same() -> None:
    index, question = DependencyIndex(), ("has", "others", "x")
    root, other = Root("a", 0, {}), Root("b", 1, {})
    part = index.part(question, "data.a")
    index.answers[part] = ("1",)
    index.add(other, [part])
    index.discard(other, [part])

    index.add(root, [part])

    (changed,) = index.renew(question, lambda _aspect: ("2",))
    assert index.askers(changed) == (root,)
    assert index.askers(question) == (root,)
    again = index.part(question, "data.a")
    assert index.answers[again] == ("2",)
    index.discard(root, [again])
    assert question not in index


def test_a_lookup_of_an_undetermined_part_renders_with_any_change() -> None:
    index, question = DependencyIndex(), ("has", "others", "x")
    root = Root("a", 0, {})
    part = index.part(question, "data.a")
    index.answers[part] = ("1",)
    index.add(root, [part])

    assert index.renew(question, lambda aspect: [][len(aspect)]) == [part]
    assert index.renew(question, lambda _aspect: ("1",)) == [part]
    assert index.renew(question, lambda _aspect: ("1",)) == []
    assert index.renew(question, None) == [part]


ASKED_FOR_PORT = (
    "{% set found = service_port(resources.services, 'default', 'x', port) %}"
    "{{ 'there' if found.is_there }}{{ ' external' if found.is_external }} {{ found.number or 'none' }}"
)


@pytest.mark.parametrize(
    ("port", "spec", "said"),
    [
        (80, None, "none"),
        (80, {"ports": [{"port": 80}]}, "there 80"),
        ("web", {"ports": [{"port": 80}, {"port": 81, "name": "web"}]}, "there 81"),
        ("80", {"ports": [{"port": 80}]}, "there none"),
        (80, {"type": "ExternalName"}, "there external none"),
    ],
)
def test_what_a_service_has_for_a_port(port: int | str, spec: dict[str, Any] | None, said: str) -> None:
    store = Store("services", ["metadata.namespace", "metadata.name"])
    if spec is not None:
        store.upsert(service("x", spec=spec))
    resources = ResourcesView({"services": store})
    assert render(ASKED_FOR_PORT, resources=resources, port=port).strip() == said
    problem = rejected("{{ service_port(resources, 'default', 'x', 80).number }}", resources=resources)
    assert problem.message.startswith("service_port expects lookups of Services")


def test_an_answer_that_is_asked_for_again_beside_others_stays_known() -> None:
    site = Site(
        "{% each s in resources.services %}{{ 'y' if resources.others.has('default', 'x') }}{% if s.spec.of != 'x' %}"
        "{{ 'y' if resources.others.has('default', s.spec.of) }}{% endif %} {% endeach %}"
    )
    site.put("s", of="x")
    site.other("x", a="1")
    site.render()
    site.put("s", of="y")
    site.render()
    site.other("x", a="2")
    assert site.count() == 0


def test_pick_wants_a_path_and_no_secret() -> None:
    secret = {"kind": "Secret", "metadata": {"namespace": "default", "name": "x"}, "data": {"a": "b"}}
    store = Store("secrets", ["metadata.namespace", "metadata.name"])
    store.upsert(secret)
    resources = ResourcesView({"secrets": store})
    problem = rejected("{{ resources.secrets.pick('data.a', 'default', 'x') }}", resources=resources)
    assert (problem.message, problem.hint) == ("pick cannot read Secrets", "use get, which returns the whole object")
    assert (
        rejected("{{ resources.secrets.pick('', 'default') }}", resources=resources).message
        == "the first argument of pick is not a path"
    )
    assert (
        rejected("{{ resources.secrets.pick(1) }}", resources=resources).message
        == "the first argument of pick is not a path"
    )


NAMES = st.sampled_from("xyz")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), NAMES),
        st.tuples(st.just("other"), NAMES, st.sampled_from("12"), st.sampled_from("12")),
        st.tuples(st.just("remove"), NAMES),
        st.just(("render",)),
    ),
    max_size=30,
)


@pytest.mark.parametrize("source", [PICKING, HAVING, BOTH])
@given(changes=CHANGES)
def test_any_changes_give_the_result_of_a_full_render(source: str, changes: list[tuple[str, ...]]) -> None:
    site = Site(source)
    for verb, *arguments in changes:
        match verb, arguments:
            case "put", [name, of]:
                site.put(name, of=of)
            case "other", [name, one, two]:
                site.other(name, a=one, b=two)
            case "remove", [name]:
                site.remove(name)
            case _:
                fresh = Engine({"main": source}).render("main", dict(site.context), Engine({}).start_run()).text
                assert site.render() == fresh.strip()
    fresh = Engine({"main": source}).render("main", dict(site.context), Engine({}).start_run()).text
    assert site.render() == fresh.strip()


class Sharing:
    """A function of templates whose result all fragments share."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, resources: ResourcesView, name: str) -> str:
        def compute() -> str:
            self.calls += 1
            found = resources["others"].get("default", name)
            if not found:
                raise ValueError(name)
            return str(found[0]["data"]["a"])

        try:
            return resources["services"].share(("sharing", name), compute)
        except ValueError:
            return "0"


def test_a_shared_result_is_computed_once_a_render_and_all_who_share_it_depend_on_its_lookups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sharing = Sharing()
    monkeypatch.setitem(cast("dict[str, Any]", GLOBALS), "sharing", sharing)
    turn = "{% each s in resources.services %}{{ s.metadata.name }}{{ sharing(resources, s.spec.of) }} {% endeach %}"
    site = Site(turn + turn)
    site.put("x", of="m")
    site.put("y", of="n")
    site.other("m", a="1")
    assert site.render() == "x1 y0 x1 y0"
    # What raises is not kept.
    assert sharing.calls == 3

    site.other("m", a="2")
    assert site.count() == 2
    assert sharing.calls == 4
    site.other("n", a="3")
    assert site.count() == 2
    site.remove("m")
    assert site.render() == "x0 y3 x0 y3"
    assert site.count() == 0


@pytest.mark.parametrize("method", ["derive", "peek", "share"])
def test_templates_cannot_call_the_methods_of_a_view_that_are_for_the_engine(method: str) -> None:
    problem = rejected(f"{{{{ resources.others.{method}(1, 2) }}}}", resources=Site("").context["resources"])

    assert problem.message == "access is not allowed in templates"
