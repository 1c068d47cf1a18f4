"""Changes that many fragments depend on: rendered ahead, taken in as a whole, and never seen in part."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline import heavy_changes
from haptic_trio.pipeline.render import Renderer
from tests.pipeline.heavy import (
    AUTHORITIES,
    BROKEN,
    CONFIG,
    NAMES,
    NONSENSE,
    PASSWORD,
    RESTRICTED,
    SHARED,
    Bench,
    authorities,
    foreign,
    site,
    users,
    web,
)
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule

# The validator asks for the version of an HAProxy, which does not exist.
pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _few_dependents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each change count as heavy that two turns depend on."""
    monkeypatch.setattr(heavy_changes, "MOST_DEPENDENTS", 1)


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    bench.put(*(site(number) for number in NAMES))
    await bench.cycle()
    return bench


async def test_a_heavy_change_is_rendered_ahead_and_taken_in_as_a_whole(bench: Bench) -> None:
    bench.put(web(81))

    prepared = await bench.cycle()
    assert (bench.targets(prepared), bench.port()) == ({"default_web_80"}, 80)
    assert "default_web_81" not in prepared.rendered.text
    steps = 1
    while not await bench.pipeline.render_ahead():
        prepared = await bench.cycle()
        assert bench.targets(prepared) == {"default_web_80"}
        steps += 1
    prepared = await bench.cycle()

    assert steps == len(NAMES)
    assert (bench.targets(prepared), bench.port()) == ({"default_web_81"}, 81)
    assert "default_web_80" not in prepared.rendered.text
    assert not bench.pipeline.is_behind
    # The Service, and what is left to the cycle: not one turn for each Ingress.
    assert prepared.rendered.fragments_rendered <= 3


async def test_turns_that_register_files_are_rendered_ahead(bench: Bench) -> None:
    bench.put(*(site(number, annotations=RESTRICTED) for number in NAMES))
    before = await bench.catch_up()
    bench.put(web(81))
    await bench.cycle()

    steps = 1
    while not await bench.pipeline.render_ahead():
        await bench.cycle()
        steps += 1
    prepared = await bench.cycle()

    # Each Ingress has a turn for its paths, and one for its backends and the list of addresses.
    assert steps >= 2 * len(NAMES)
    assert prepared.rendered.fragments_rendered <= 3
    lists = {path for path in prepared.rendered.files if "allow-" in path}
    assert len(lists) == len(NAMES)
    assert lists == {path for path in before.rendered.files if "allow-" in path}


async def test_a_file_of_several_turns_is_that_of_the_first_one(bench: Bench) -> None:
    bench.put(authorities(0), *(site(number, annotations=SHARED) for number in NAMES))
    before = await bench.catch_up()
    (path,) = [path for path in before.rendered.files if "endpoints-" in path]
    for change in (web(81), authorities(1), web(82)):
        bench.put(change)
        prepared = await bench.catch_up()
        assert not prepared.rendered.rejections
        assert prepared.rendered.text.count(path) == len(NAMES)

    bench.delete(site(0))
    assert (await bench.catch_up()).rendered.text.count(path) == len(NAMES) - 1


async def test_turns_that_share_a_file_are_rendered_ahead(bench: Bench) -> None:
    bench.put(authorities(0), *(site(number, annotations=SHARED) for number in NAMES))
    before = await bench.catch_up()
    (path,) = [path for path in before.rendered.files if "endpoints-" in path]
    bench.put(authorities(1))
    prepared, steps = await bench.take_in_heavy()

    assert steps >= len(NAMES)
    assert prepared.rendered.fragments_rendered <= 3
    assert prepared.rendered.files[path].content == AUTHORITIES[1]


async def test_others_change_meanwhile(bench: Bench) -> None:
    bench.put(web(81))
    await bench.cycle()
    await bench.pipeline.render_ahead()

    bench.put(site(9))
    prepared = await bench.cycle()
    assert "h9.test|/ default_web_80" in prepared.rendered.texts["maps/path-prefix.map"].text

    prepared = await bench.catch_up()
    assert "h9.test|/ default_web_81" in prepared.rendered.texts["maps/path-prefix.map"].text
    assert bench.targets(prepared) == {"default_web_81"}


async def test_what_changes_after_it_was_rendered_ahead_renders_again(bench: Bench) -> None:
    bench.put(web(81))
    await bench.cycle()
    for _step in NAMES:
        await bench.pipeline.render_ahead()

    bench.put(site(0, where="/new"))
    bench.delete(site(1))
    prepared = await bench.catch_up()

    text = prepared.rendered.texts["maps/path-prefix.map"].text
    assert "h0.test|/new/ default_web_81" in text
    assert "h1.test" not in text


async def test_a_path_that_another_namespace_takes_meanwhile_is_given_up(bench: Bench) -> None:
    bench.put(web(81))
    await bench.cycle()
    for _step in NAMES:
        await bench.pipeline.render_ahead()

    bench.put(foreign(0))
    # Both in one cycle.
    prepared = await bench.cycle()

    assert bench.port() == 81
    text = prepared.rendered.texts["maps/path-prefix.map"].text
    assert "h0.test|/ other_web_80" in text
    assert "h0.test|/ default_web" not in text
    assert bench.targets(prepared) == {"other_web_80", "default_web_81"}


async def test_what_is_rendered_ahead_knows_no_change_that_waits_itself(bench: Bench) -> None:
    bench.delete(site(0))
    await bench.cycle()
    await bench.pipeline.render_ahead()
    # No cycle has seen these when the next step begins, and together they are heavy.
    bench.delete(site(2))
    bench.put(endpoint_slice("web", *(endpoint(f"10.0.0.{one}") for one in (1, 2)), ports={"http": 8080}))
    while not await bench.pipeline.render_ahead():
        pass

    assert "10.0.0.2" not in (await bench.cycle()).rendered.text
    assert "10.0.0.2" in (await bench.catch_up()).rendered.text


async def test_a_newer_version_waits_for_the_one_that_is_rendered(bench: Bench) -> None:
    bench.put(web(81))
    await bench.cycle()
    await bench.pipeline.render_ahead()
    ports = []
    for port in range(82, 100):
        # Without an end of changes: each version that was begun is completed.
        bench.put(web(port))
        if await bench.pipeline.render_ahead():
            await bench.cycle()
        ports.append(bench.port())

    assert ports[0] == 80
    assert 81 in ports
    assert len(set(ports)) > 3
    assert bench.targets(await bench.catch_up()) == {"default_web_99"}


async def test_a_deletion_waits_for_no_former_version(bench: Bench) -> None:
    bench.put(web(81))
    await bench.cycle()
    await bench.pipeline.render_ahead()

    bench.delete(web(81))
    await bench.cycle()
    seen = set()
    for _turn in range(4):
        if await bench.pipeline.render_ahead():
            await bench.cycle()
        seen |= {one["spec"]["ports"][0]["port"] for one in bench.stores["services"].get("default", "web")}
    prepared = await bench.catch_up()

    assert seen == {80}
    assert bench.stores["services"].get("default", "web") == ()
    assert bench.targets(prepared) == {"default_web_http"}


async def test_a_change_that_fewer_depend_on_does_not_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy_changes, "MOST_DEPENDENTS", len(NAMES) + 1)
    bench.put(web(81))

    assert bench.targets(await bench.cycle()) == {"default_web_81"}


async def test_a_change_whose_turns_change_all_the_time_lets_those_of_other_namespaces_go_first(bench: Bench) -> None:
    def evil(step: int) -> list[Resource]:
        paths = path("/", "web", "http"), path(f"/{step}", "web", "http")
        return [ingress(f"e{n}", rule(f"e{n}.test", *paths), namespace="evil", age=50 + n) for n in NAMES]

    bench.put(web(80, namespace="evil"), *evil(0), *(site(number) for number in NAMES))
    await bench.catch_up()
    bench.put(web(81, namespace="evil"))
    await bench.cycle()
    bench.put(web(81))
    await bench.cycle()
    steps = 0
    while bench.port() == 80 and steps < 100:
        steps += 1
        if await bench.pipeline.render_ahead():
            await bench.cycle()
        bench.put(*evil(steps))
        await bench.cycle()

    # Twice the six turns, and those of the other namespace.
    assert steps < 30


async def test_changes_that_are_heavy_together_are_taken_in_one_after_the_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many Ingresses name each of three Services as one change may make pending.
    monkeypatch.setattr(heavy_changes, "MOST_DEPENDENTS", len(NAMES) + 1)
    names = ("web", "shop", "blog")
    for name in names[1:]:
        rules = [rule(f"h{number}.{name}.test", path("/", name, "http")) for number in NAMES]
        bench.put(web(80, name), *(ingress(f"{name}-{number}", one) for number, one in enumerate(rules)))
    await bench.catch_up()

    bench.put(*(web(81, name) for name in names))
    others = [web(81, "web", namespace="other"), foreign(7, "/other")]
    bench.put(*others)
    seen = []
    for _turn in names:
        prepared = await bench.cycle()
        seen.append(
            len([line for line in prepared.rendered.text.splitlines() if line.endswith("_81 from profile-http")])
        )
        while bench.pipeline.is_behind and not await bench.pipeline.render_ahead():
            pass

    # A Service of another namespace does not wait.
    assert seen == [2, 3, 4]
    assert not bench.pipeline.is_behind


async def test_a_deletion_of_several_objects_is_taken_in_one_after_the_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heavy_changes, "MOST_DEPENDENTS", len(NAMES) + 1)
    rules = [rule(f"h{number}.shop.test", path("/", "shop", "http")) for number in NAMES]
    bench.put(web(80, "shop"), *(ingress(f"shop-{number}", one) for number, one in enumerate(rules)))
    await bench.catch_up()

    bench.delete(web(80))
    bench.delete(web(80, "shop"))
    left = []
    for _turn in range(2):
        await bench.cycle()
        left.append(len(bench.stores["services"].list()))
        while bench.pipeline.is_behind and not await bench.pipeline.render_ahead():
            pass

    assert left == [1, 0]


async def test_an_object_that_fails_with_the_change_is_quarantined_when_it_is_taken_in(bench: Bench) -> None:
    bench.put(*(site(number, annotations=RESTRICTED) for number in NAMES))
    await bench.catch_up()
    bench.put(site(0, annotations=BROKEN))
    before = await bench.catch_up()
    assert len(before.rendered.rejections) == 1

    bench.put(web(81))
    prepared = await bench.catch_up()

    assert {rejection.subject.name for rejection in prepared.rendered.rejections} == {"i0"}
    assert bench.port() == 81


async def test_a_heavy_change_is_rendered_ahead_while_another_object_is_served_by_its_good_version(
    bench: Bench,
) -> None:
    # Of all these, the oldest Ingress of the host is looked up.
    bench.put(*(site(number, host=1, where=f"/{number}") for number in NAMES), site(7))
    await bench.catch_up()
    bench.put(site(7, annotations=NONSENSE))
    assert len((await bench.catch_up()).rendered.rejections) == 1

    bench.put(ingress("oldest", rule("h1.test", path("/oldest", "web", "http")), age=1))
    await bench.cycle()
    steps = 1
    while not await bench.pipeline.render_ahead():
        await bench.cycle()
        steps += 1
    prepared = await bench.cycle()

    assert steps >= len(NAMES)
    text = prepared.rendered.texts["maps/path-prefix.map"].text
    assert "h1.test|/oldest/ default_web_80" in text
    assert "h7.test|/ default_web_80" in text


_ports = st.integers(80, 83)
_numbers = st.sampled_from(NAMES)
OPERATIONS = st.one_of(
    st.tuples(st.just("service"), _ports),
    st.tuples(st.just("no service"), _ports),
    st.tuples(
        st.just("ingress"),
        _numbers,
        _numbers,
        st.sampled_from(["/", "/a"]),
        st.sampled_from([None, RESTRICTED, BROKEN, NONSENSE, PASSWORD, SHARED, SHARED]),
    ),
    st.tuples(st.just("no ingress"), _numbers),
    st.tuples(st.just("foreign"), _numbers, st.sampled_from(["/", "/a"])),
    st.tuples(st.just("no foreign"), _numbers),
    st.tuples(st.just("endpoint"), st.integers(1, 3)),
    st.tuples(st.just("authorities"), st.integers(0, 1)),
    st.tuples(st.just("no authorities"), st.just(0)),
    st.tuples(st.just("users"), st.sampled_from([1000, 2000, 600_000])),
    st.tuples(st.just("step")),
    st.tuples(st.just("step")),
    st.tuples(st.just("cycle")),
)


def _write(bench: Bench, name: str, *values: Any) -> None:
    match name:
        case "service":
            bench.put(web(*values))
        case "no service":
            bench.delete(web(80))
        case "ingress":
            number, host, where, annotations = values
            bench.put(site(number, host=host, where=where, annotations=annotations))
        case "no ingress":
            bench.delete(site(*values))
        case "foreign":
            bench.put(foreign(*values))
        case "no foreign":
            bench.delete(foreign(*values))
        case "endpoint":
            addresses = (endpoint(f"10.0.0.{number}") for number in range(1, values[0] + 1))
            bench.put(endpoint_slice("web", *addresses, ports={"http": 8080}))
        case "authorities":
            bench.put(authorities(*values))
        case "no authorities":
            bench.delete(authorities(*values))
        case "users":
            bench.put(users(*values))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATIONS, min_size=5, max_size=25))
async def test_each_cycle_gives_what_a_complete_render_gives(operations: list[tuple[Any, ...]]) -> None:
    bench = Bench()
    bench.put(*(site(number) for number in NAMES))
    await bench.cycle()
    for name, *values in operations:
        match name:
            case "step":
                await bench.pipeline.render_ahead()
            case "cycle":
                await bench.cycle()
            case _:
                _write(bench, name, *values)
    prepared = await bench.catch_up()

    # The output of rejected objects depends on what they were before; each cycle has compared it.
    if prepared.rendered.rejections:
        return
    complete = Renderer(CONFIG).render_here(bench.stores)
    assert {path: text.text for path, text in prepared.rendered.texts.items()} == {
        path: text.text for path, text in complete.texts.items()
    }
