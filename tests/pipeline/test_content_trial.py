"""Contents that break a configuration are found and rejected, in whichever phase and however many there are."""

import base64
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.haproxy.model import Generation
from haptic_trio.httpstore.content import FetchError
from haptic_trio.httpstore.contents import Contents
from haptic_trio.k8s.resource import ref_of
from haptic_trio.messages import ConfigRendered, Quarantined, Released, RenderDiffered
from haptic_trio.pipeline.rejection.errors import RejectedError, UndecidedError
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.review.dry_run_object import render_dry_run
from tests.pipeline.contents.bench import CONFIG, EACH, LIMIT, LIST, ContentBench, lines_of
from tests.support.components.pipeline import config_of
from tests.support.kubernetes import service
from tests.support.processes.scripts import script

pytestmark = pytest.mark.haproxy


def map_of(generation: Generation) -> str:
    return generation.files["maps/deny.map"].content.decode()


def with_map(**more: Any) -> dict[str, Any]:
    return {"maps": {"deny.map": {"template": lines_of("deny", "denied")}}, **more}


async def test_changed_content_is_accepted_once_haproxy_has(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, CONFIG, {"deny": "192.0.2.1\n"}, **with_map())
    assert map_of(await bench.made()) == "192.0.2.1 denied\n"
    assert bench.accepted == 1
    await bench.give(deny="192.0.2.2\n")
    assert bench.kept.changes == []

    assert map_of(await bench.made()) == "192.0.2.2 denied\n"
    assert (bench.accepted, bench.rejected, bench.kept.store.pending()) == (2, [], {})


async def test_no_event_and_no_error_shows_the_path_of_a_url_from_a_secret(haproxy_binary: Path) -> None:
    template = """\
{% set secret = resources.planted.get_single("default", "planted") %}
{% set name = secret.data.name | b64decode %}
# {{ http.fetch("https://lists.example.com/" ~ name) | hash }}
# {{ http.fetch("https://lists.example.com/absent/" ~ name) | hash }}
# {{ http.fetch("https://lists.example.com/needed/" ~ name, critical=true) | hash }}
"""
    planted = {"apiVersion": "v1", "resources": "secrets", "indexBy": ["metadata.namespace", "metadata.name"]}
    bench = ContentBench(
        haproxy_binary, f"{CONFIG}{template}", {"S3CRET": "a list"}, watchedResources={"planted": planted}
    )
    name = base64.b64encode(b"S3CRET").decode()
    secret = {"kind": "Secret", "metadata": {"namespace": "default", "name": "planted"}, "data": {"name": name}}
    bench.stores["planted"].upsert(secret)

    with pytest.raises(RejectedError) as caught:
        await bench.run()

    assert f"{LIST}S3CRET" in bench.kept.servers.asked
    assert "S3CRET" not in f"{caught.value} {caught.value.problems} {bench.kept.happened} {bench.reported()}"


async def test_content_that_an_emitter_rejects_leaves_the_former_one(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, CONFIG, {"deny": "192.0.2.1\n"}, **with_map())
    await bench.made()
    await bench.give(deny="two words\n")

    assert map_of(await bench.made()) == "192.0.2.1 denied\n"
    ((name, message),) = bench.rejected
    assert name == "deny"
    assert "map_key" in message
    # It costs nothing more as long as it stays like that.
    bench.reported()
    await bench.give(deny="two words\n")
    await bench.made()
    assert len([event for event in bench.reported() if isinstance(event, ConfigRendered)]) == 1
    assert len(bench.rejected) == 1
    await bench.give(deny="192.0.2.3\n")
    assert map_of(await bench.made()) == "192.0.2.3 denied\n"


async def test_first_content_that_is_rejected_is_left_out(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, CONFIG, {"deny": "two words\n"}, **with_map())

    assert map_of(await bench.made()) == ""
    assert [name for name, _ in bench.rejected] == ["deny"]


async def test_of_several_contents_the_guilty_one_is_found(haproxy_binary: Path) -> None:
    names = ("a", "b", "c", "d")
    fetches = "".join(lines_of(name, name) for name in names)
    bench = ContentBench(
        haproxy_binary, CONFIG, dict.fromkeys(names, "192.0.2.1\n"), maps={"deny.map": {"template": fetches}}
    )
    await bench.made()
    await bench.give(a="192.0.2.2\n", b="two words\n", c="192.0.2.3\n", d="more than two words\n")

    expected = "192.0.2.2 a\n192.0.2.1 b\n192.0.2.3 c\n192.0.2.1 d\n"
    assert map_of(await bench.made()) == expected
    assert sorted(name for name, _ in bench.rejected) == ["b", "d"]
    assert bench.accepted == 6
    assert map_of(await bench.made()) == expected


async def test_content_in_a_fragment_is_rejected_before_its_object_is_quarantined(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, EACH, {"web": "10.0.0.1\n", "api": "10.0.0.2\n"})
    bench.put(service("web"), service("api"))
    await bench.made()
    bench.reported()
    await bench.give(web="10.0.0.9\n", api="not an address\n")

    text = (await bench.made()).text
    assert "10.0.0.9:80" in text
    assert "10.0.0.2:80" in text
    assert [name for name, _ in bench.rejected] == ["api"]
    assert not [event for event in bench.reported() if isinstance(event, Quarantined | Released)]


async def test_only_the_fragments_that_fetched_a_changed_content_are_rendered_again(haproxy_binary: Path) -> None:
    names = [f"s{number}" for number in range(20)]
    bench = ContentBench(haproxy_binary, EACH, dict.fromkeys(names, "10.0.0.1\n"))
    bench.put(*map(service, names))
    await bench.made()
    bench.reported()
    await bench.give(s7="10.0.0.7\n")

    assert (await bench.made()).text.count("10.0.0.7:80") == 1
    (rendered,) = [event for event in bench.reported() if isinstance(event, ConfigRendered)]
    assert (rendered.fragments_rendered, rendered.fragments_reused) == (1, 19)


async def test_content_that_haproxy_alone_rejects_is_left_out(haproxy_binary: Path) -> None:
    template = CONFIG + "    http-request deny if { src {{ http.fetch('https://lists.example.com/network') }} }\n"
    bench = ContentBench(haproxy_binary, template, {"network": "192.0.2.0/24"})
    before = await bench.made()
    await bench.give(network="192.0.2.0/99")
    # Our own parser takes it.
    assert "192.0.2.0/99" in (await bench.pipeline.prepare("1")).generation.text

    assert (await bench.made()).id == before.id
    assert [name for name, _ in bench.rejected] == ["network"]


async def test_content_that_our_own_parser_rejects_is_left_out(haproxy_binary: Path) -> None:
    template = CONFIG + "    http-response {{ http.fetch('https://lists.example.com/action') }} x-made yes\n"
    bench = ContentBench(haproxy_binary, template, {"action": "set-header"})
    before = await bench.made()
    await bench.give(action="nonsense")

    assert (await bench.pipeline.prepare("1")).generation.id == before.id
    assert [name for name, _ in bench.rejected] == ["action"]


async def test_contents_are_tried_one_after_another_where_the_check_runs_beside(haproxy_binary: Path) -> None:
    names = ("a", "b", "c")
    template = CONFIG + "".join(
        f"    http-request deny if {{ path /{name} }} {{ src {{{{ http.fetch('{LIST}{name}') }}}} }}\n"
        for name in names
    )
    bench = ContentBench(haproxy_binary, template, dict.fromkeys(names, "192.0.2.0/24"))
    await bench.made()
    await bench.give(a="192.0.2.0/25", b="192.0.2.0/99", c="192.0.2.0/25")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.kept.run)
        with trio.fail_after(LIMIT):
            first = await bench.pipeline.prepare("1")
            with pytest.raises(RejectedError) as caught:
                await bench.pipeline.check(first, idle=False)
            assert caught.value.is_quarantined
            # Meanwhile, and after that: what was good before.
            second = await bench.pipeline.prepare("2")
            assert "192.0.2.0/25" not in second.generation.text
            await bench.pipeline.check(second, idle=False)
            checks = 0
            while not bench.rejected or bench.kept.store.pending():
                checks += 1
                await bench.kept.wait_changed(min(checks, 2))
                prepared = await bench.pipeline.prepare("3")
                with suppress(RejectedError):
                    await bench.pipeline.check(prepared, idle=False)
        nursery.cancel_scope.cancel()

    text = (await bench.made()).text
    assert [name for name, _ in bench.rejected] == ["b"]
    assert [f"/{name} }} {{ src 192.0.2.0/25 }}" in text for name in names] == [True, False, True]
    assert checks <= 4


async def test_check_that_comes_too_late_says_nothing_of_what_is_left_out_already(haproxy_binary: Path) -> None:
    template = CONFIG + "    http-request deny if { src {{ http.fetch('https://lists.example.com/network') }} }\n"
    bench = ContentBench(haproxy_binary, template, {"network": "192.0.2.0/24"})
    good = await bench.made()
    await bench.give(network="192.0.2.0/99")
    late = [await bench.pipeline.prepare(f"{number}") for number in range(2)]
    for prepared in late:
        with pytest.raises(RejectedError) as caught:
            await bench.pipeline.check(prepared, idle=False)
        assert caught.value.is_quarantined

    assert (await bench.made()).id == good.id
    assert [name for name, _ in bench.rejected] == ["network"]


async def test_content_that_haproxy_rejects_in_a_fragment_is_left_out(haproxy_binary: Path) -> None:
    template = EACH.replace(
        "    server", "    option {{ http.fetch('https://lists.example.com/option').strip() | word }}\n    server"
    )
    bench = ContentBench(haproxy_binary, template, {"web": "10.0.0.1\n", "option": "httpclose"})
    bench.put(service("web"))
    before = await bench.made()
    await bench.give(option="nonsense")

    assert (await bench.made()).id == before.id
    assert [name for name, _ in bench.rejected] == ["option"]
    assert bench.quarantine.objects == ()


async def test_contents_are_not_blamed_for_what_fails_without_them(haproxy_binary: Path) -> None:
    template = CONFIG + "{% if resources.services.list() | length > 1 %}{{ fail('too many') }}{% endif %}\n"
    bench = ContentBench(haproxy_binary, template, {"deny": "192.0.2.1\n"}, **with_map())
    await bench.made()
    bench.put(service("web"), service("api"))
    await bench.give(deny="192.0.2.2\n")
    with pytest.raises(RejectedError, match="too many"):
        await bench.made()
    assert bench.rejected == []
    bench.services.replace([])

    assert map_of(await bench.made()) == "192.0.2.2 denied\n"


async def test_contents_are_not_blamed_for_an_object_that_breaks_meanwhile(haproxy_binary: Path) -> None:
    template = EACH.replace(
        "{% for", "{% if svc.metadata.broken is defined %}{{ fail('broken') }}{% endif %}\n{% for", 1
    )
    bench = ContentBench(haproxy_binary, template, {"web": "10.0.0.1\n"})
    bench.put(service("web"))
    await bench.made()
    bad = service("api")
    bad["metadata"]["broken"] = "yes"
    bench.put(bad)
    await bench.give(web="10.0.0.2\n")

    assert "10.0.0.2:80" in (await bench.made()).text
    assert bench.rejected == []
    assert len(bench.quarantine.objects) == 1


async def test_without_a_critical_content_its_fragment_is_quarantined_and_released_with_it(
    haproxy_binary: Path,
) -> None:
    template = EACH.replace("~ svc.metadata.name)", "~ svc.metadata.name, critical=true)")
    bench = ContentBench(haproxy_binary, template, {"web": FetchError("the server answered 503"), "api": "10.0.0.2\n"})
    bench.put(service("web"), service("api"))

    assert "10.0.0.2:80" in (await bench.made()).text
    (held,) = bench.quarantine.objects
    assert held.problem.message == "https://lists.example.com/web is not to be had: the server answered 503"
    await bench.give(web="10.0.0.1\n")
    assert "10.0.0.1:80" in (await bench.made()).text
    assert bench.quarantine.objects == ()
    # Once it is there, failing to fetch it again changes nothing.
    bench.kept.servers.texts[f"{LIST}web"] = FetchError("the server answered 503")
    await bench.kept.refresh()
    assert "10.0.0.1:80" in (await bench.made()).text


async def test_critical_content_outside_of_fragments_fails_the_cycle_with_its_reason(haproxy_binary: Path) -> None:
    template = CONFIG + "# {{ http.fetch('https://lists.example.com/x?key=s3cret', critical=true) | length }}\n"
    bench = ContentBench(haproxy_binary, template, {})
    with pytest.raises(RejectedError, match=r"example\.com/x\?… is not to be had: the server answered 404") as caught:
        await bench.made()

    assert "s3cret" not in f"{caught.value} {bench.reported()} {bench.kept.happened}"


async def test_contents_are_released_with_the_last_template_that_uses_them(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, EACH, {"web": "10.0.0.1\n", "api": "10.0.0.2\n"})
    bench.put(service("web"), service("api"))
    await bench.made()
    assert len(bench.kept.store) == 2
    bench.services.replace([service("web")])
    await bench.made()

    assert len(bench.kept.store) == 1


async def test_a_content_may_name_the_next_one(haproxy_binary: Path) -> None:
    template = CONFIG + (
        "{% for name in http.fetch('https://lists.example.com/index').split() %}\n"
        "# {{ http.fetch('https://lists.example.com/' ~ name) }}\n{% endfor %}\n"
    )
    bench = ContentBench(haproxy_binary, template, {"index": "a b", "a": "one", "b": "two"})

    assert (await bench.made()).text.endswith("# one\n# two\n")
    await bench.give(index="b")
    assert (await bench.made()).text.endswith("bind 127.0.0.1:8080\n# two\n")
    assert len(bench.kept.store) == 2


async def test_a_second_full_render_gets_the_same_contents(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, EACH, {"web": "10.0.0.1\n"}, validation={"paranoiaEvery": 1})
    bench.put(service("web"))
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.2"):
        await bench.give(web=f"{address}\n")
        assert f"{address}:80" in (await bench.made()).text

    assert not [event for event in bench.reported() if isinstance(event, RenderDiffered)]
    assert len(bench.kept.servers.asked) == 1 + 2


async def test_rehearsal_fetches_nothing(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, EACH, {"web": "10.0.0.1\n", "new": "10.0.0.3\n"})
    bench.put(service("web"))
    before = await bench.made()
    new = service("new")
    with trio.fail_after(LIMIT):
        dry_run = await render_dry_run(
            bench.renderer, bench.stores, {"services": {ref_of(new): new}}, bench.quarantine.recall(), limit=LIMIT
        )

    assert dry_run.after is not None
    assert dry_run.after.rejections == ()
    assert "backend new" in dry_run.after.text
    assert bench.kept.servers.asked == [f"{LIST}web"]
    assert (await bench.made()).id == before.id
    bench.put(new)
    assert "10.0.0.3:80" in (await bench.made()).text


async def test_templates_reach_nothing_of_the_store(haproxy_binary: Path) -> None:
    for attribute in ("_fetches", "fetch.__self__", "fetch.__func__.__globals__"):
        bench = ContentBench(haproxy_binary, CONFIG + f"# {{{{ http.{attribute} }}}}\n", {})
        with pytest.raises(RejectedError):
            await bench.made()


def test_contents_by_default_are_none() -> None:
    renderer = Renderer(config_of(CONFIG + "# {{ http.fetch('https://lists.example.com/x') | length }}\n"))

    assert renderer.render_here({}).text.endswith("# 0\n")
    assert isinstance(renderer.contents, Contents)


async def test_check_without_a_verdict_rejects_no_content_and_no_object(haproxy_binary: Path, tmp_path: Path) -> None:
    dying = tmp_path / "dying"
    binary = script(
        tmp_path / "haproxy", f'[ "$1" = -c ] && [ -e {dying} ] && kill -KILL $$\nexec "{haproxy_binary}" "$@"'
    )
    bench = ContentBench(binary, EACH, {"web": "10.0.0.1\n"})
    bench.put(service("web"))
    await bench.made()
    await bench.give(web="10.0.0.2\n")
    dying.touch()

    with pytest.raises(UndecidedError):
        await bench.made()
    assert (bench.rejected, bench.quarantine.objects, len(bench.kept.store.pending())) == ([], (), 1)

    dying.unlink()
    assert "10.0.0.2:80" in (await bench.made()).text
    assert (bench.accepted, bench.rejected, bench.kept.store.pending()) == (2, [], {})
