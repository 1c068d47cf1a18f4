"""From templates and objects to texts and files, within limits, and off the event loop."""

import time
from typing import Any

import pytest
import trio
import trio.testing

from haptic_trio.haproxy.model import FileKind
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Rendered, Renderer
from tests.support.components.pipeline import config_of, stores_of
from tests.support.kubernetes import service

ENDLESS = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"


async def render(template: str, *names: str, **fields: Any) -> Rendered:
    config = config_of(template, **fields)
    stores = stores_of(config)
    for name in names:
        stores["services"].upsert(service(name))
    return await Renderer(config).render(stores)


async def rejection_of(template: str, *names: str, **fields: Any) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        await render(template, *names, **fields)
    return caught.value


async def test_text_is_made_from_objects_and_extra_context() -> None:
    rendered = await render(
        "global\n    maxconn {{ limit }}\n{% for s in resources.services.list() %}# {{ ident(s.metadata.name) }}\n"
        "{% endfor %}",
        "web",
        "api",
        templating={"libraries": [], "extraContext": {"limit": 7}},
    )

    assert rendered.text == "global\n    maxconn 7\n# api\n# web\n"


async def test_files_are_in_the_directories_of_their_kind() -> None:
    rendered = await render(
        "global\n",
        dataplane={"mapsDir": "m", "sslCertsDir": "s", "generalStorageDir": "g"},
        maps={"host.map": {"template": "a b\n"}},
        files={"503.http": {"template": "gone\n"}},
        sslCertificates={"web.pem": {"template": "key\n"}},
        crtLists={"all.txt": {"template": "s/web.pem\n"}},
    )

    assert {(file.path, file.kind, file.secret) for file in rendered.files.values()} == {
        ("m/host.map", FileKind.MAP, False),
        ("g/503.http", FileKind.FILE, False),
        ("s/web.pem", FileKind.CERT, True),
        ("s/all.txt", FileKind.CRT_LIST, False),
    }


async def test_file_that_is_made_while_rendering_is_one_of_the_files() -> None:
    rendered = await render("{% set key %}secret{% endset %}# {{ files.cert('a.pem', key) }}\n")

    [file] = rendered.files.values()
    assert (file.path, file.kind, file.content, file.secret) == ("ssl/a.pem", FileKind.CERT, b"secret", True)
    assert rendered.text == "# ssl/a.pem\n"


async def test_line_of_a_fragment_is_known_to_be_of_its_object() -> None:
    rendered = await render(
        "global\n{% for s in resources.services.list() %}{% fragment 'x' for s %}# {{ ident(s.metadata.name) }}\n"
        "{% endfragment %}{% endfor %}",
        "web",
        "api",
    )

    origins = [rendered.texts["haproxy.cfg"].origin_of(line) for line in (1, 2, 3)]
    assert [str(origin.subject) if origin else None for origin in origins] == [
        None, "Service default/api", "Service default/web",
    ]  # fmt: skip


async def test_every_template_that_fails_is_reported_with_its_place() -> None:
    error = await rejection_of(
        "global\n{{ nothing.here }}\n", maps={"host.map": {"template": "\n\n{{ fail('no hosts') }}\n"}}
    )

    assert error.phase == "render"
    assert [(problem.source, problem.line) for problem in error.problems] == [("maps/host.map", 3), ("haproxy.cfg", 2)]
    assert error.problems[0].message == "no hosts"
    assert "nothing.here" in error.problems[1].excerpt


async def test_runaway_template_is_stopped_at_the_time_limit() -> None:
    began = time.monotonic()

    error = await rejection_of(ENDLESS, templating={"libraries": [], "renderTimeout": "100ms"})

    assert time.monotonic() - began < 10
    assert "took longer than 0.1 s" in error.problems[0].message
    assert (error.problems[0].source, error.problems[0].line) == ("haproxy.cfg", 1)


async def test_runaway_fragment_quarantines_its_object_and_the_others_are_rendered() -> None:
    body = "{% if s.spec.n == 'endless' %}" + ENDLESS + "{% endif %}"
    renderer, stores = changing(body, templating={"libraries": [], "fragmentTimeout": "100ms"})
    for name, n in (("a", 1), ("bad", "endless"), ("c", 1)):
        stores["services"].upsert(service(name, n=n))

    rendered = await renderer.render(stores)

    assert rendered.text == "# a 1\n# c 1\n"
    (rejection,) = rendered.rejections
    assert str(rejection.subject) == "Service default/bad"
    assert "took longer than 0.1 s" in rejection.problem.message
    assert (rejection.problem.source, rejection.problem.line) == ("haproxy.cfg", 2)
    # It has its turn again when it changes, and not before.
    stores["services"].upsert(service("a", n=2))
    assert (await renderer.render(stores)).fragments_rendered == 1
    stores["services"].upsert(service("bad", n=2))
    assert (await renderer.render(stores)).rejections == ()


async def test_output_that_grows_without_end_is_stopped() -> None:
    error = await rejection_of(
        "{% for i in range(100000) %}0123456789\n{% endfor %}", templating={"libraries": [], "maxOutputBytes": 10_000}
    )

    assert "grew beyond 10,000 bytes" in error.problems[0].message


async def test_event_loop_goes_on_while_a_template_runs() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.001)  # real time: the template runs in a thread meanwhile
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await rejection_of(ENDLESS, templating={"libraries": [], "renderTimeout": "300ms"})
        nursery.cancel_scope.cancel()

    assert turns > 3


async def test_cancelled_render_is_abandoned_at_once_and_its_thread_ends() -> None:
    config = config_of(
        "{% if resources.services.list() %}" + ENDLESS + "{% endif %}global\n",
        templating={"libraries": [], "renderTimeout": "10m"},
    )
    stores = stores_of(config)
    stores["services"].upsert(service("web"))
    renderer = Renderer(config)
    began = time.monotonic()
    with trio.move_on_after(0.1) as scope:
        await renderer.render(stores)
    assert scope.cancelled_caught
    assert time.monotonic() - began < 10

    # It renders one at a time: the next one begins when the thread of the former has ended.
    with trio.fail_after(30):
        rendered = await renderer.render(stores_of(config))

    assert rendered.text == "global\n"


EACH = "{% each s in resources.services as 'x' %}# {{ ident(s.metadata.name) }} {{ s.spec.n }}\nBODY{% endeach %}"


def changing(body: str = "", **fields: Any) -> tuple[Renderer, Stores]:
    config = config_of(EACH.replace("BODY", body), **fields)
    return Renderer(config), stores_of(config)


async def test_only_what_changed_is_rendered_and_said_to_have_changed() -> None:
    renderer, stores = changing()
    for name in ("a", "b"):
        stores["services"].upsert(service(name, n=1))
    first = await renderer.render(stores)
    stores["services"].upsert(service("b", n=2))
    stores["services"].upsert(service("c", n=3))

    second = await renderer.render(stores)

    assert (first.fragments_rendered, first.fragments_reused, first.is_new) == (2, 0, True)
    assert (second.fragments_rendered, second.fragments_reused, second.is_new) == (2, 1, False)
    assert {key.name: output.text if output else None for key, output in second.changed.items()} == {
        "b": "# b 2\n", "c": "# c 3\n",
    }  # fmt: skip
    assert (first.text, second.text) == ("# a 1\n# b 1\n", "# a 1\n# b 2\n# c 3\n")
    assert (second.serial, second.config.size) == (first.serial + 1, len(second.text))


async def test_render_that_fails_loses_no_change() -> None:
    config = config_of("{% if resources.services.get('default', 'bad') %}{{ fail('no') }}{% endif %}" + EACH)
    renderer, stores = Renderer(config), stores_of(config)
    stores["services"].upsert(service("a", n=1))
    await renderer.render(stores)
    stores["services"].upsert(service("a", n=2))
    stores["services"].upsert(service("bad", n=1))
    with pytest.raises(RejectedError):
        await renderer.render(stores)
    stores["services"].delete(ResourceRef("Service", "default", "bad"))

    rendered = await renderer.render(stores)

    assert rendered.text == "# a 2\nBODY"
    assert {key.name for key in rendered.changed} == {"a"}


async def test_render_that_is_cancelled_in_the_middle_loses_no_change() -> None:
    renderer, stores = changing(
        "{% if s.spec.n == 'endless' %}" + ENDLESS + "{% endif %}", templating={"libraries": [], "renderTimeout": "10m"}
    )
    for name in "abc":
        stores["services"].upsert(service(name, n=1))
    await renderer.render(stores)
    for name in "ac":
        stores["services"].upsert(service(name, n=2))
    stores["services"].upsert(service("b", n="endless"))
    with trio.move_on_after(0.1) as scope:
        await renderer.render(stores)
    assert scope.cancelled_caught
    stores["services"].upsert(service("b", n=3))

    with trio.fail_after(30):
        rendered = await renderer.render(stores)

    assert rendered.text == "# a 2\n# b 3\n# c 2\n"
    assert {key.name for key in rendered.changed} == {"a", "b", "c"}


async def test_other_stores_are_rendered_from_scratch() -> None:
    renderer, stores = changing()
    stores["services"].upsert(service("a", n=1))
    await renderer.render(stores)
    others = stores_of(config_of(EACH))
    others["services"].upsert(service("b", n=1))

    rendered = await renderer.render(others)

    assert (rendered.text, rendered.is_new) == ("# b 1\n", True)


async def test_paranoia_compares_regularly_and_uses_the_full_render() -> None:
    template = "{{ resources.services.list() | length }}\n" + EACH.replace("BODY", "")
    config = config_of(template, validation={"paranoiaEvery": 2})
    renderer, stores = Renderer(config), stores_of(config)
    stores["services"].upsert(service("a", n=1))
    first = await renderer.render(stores)
    right = await renderer.render(stores)
    # Forbidden in the program: the object changes without a write to the store.
    stores["services"].list()[0]["spec"]["n"] = 2
    wrong = await renderer.render(stores)
    corrected = await renderer.render(stores)

    assert [rendered.differing for rendered in (first, right, wrong, corrected)] == [(), (), (), ("haproxy.cfg",)]
    assert wrong.text == first.text
    assert (corrected.text, corrected.is_new) == ("1\n# a 2\n", True)
    assert (await renderer.render(stores)).text == corrected.text


async def test_provenance_leads_from_a_line_to_its_object_and_back() -> None:
    config = config_of(
        "global\n{% each s in resources.services as 'x' %}# {{ ident(s.metadata.name) }}\n"
        "# {{ resources.services.get('default', 'b') | length }} {{ files.file(s.metadata.name, 'y') }}\n{% endeach %}",
        maps={"m.map": {"template": "{% for s in resources.services.list() %}{% fragment 'm' for s %}a b\n"
                        "{% endfragment %}{% endfor %}"}},
    )  # fmt: skip
    renderer, stores = Renderer(config), stores_of(config)
    assert renderer.provenance() is None
    for name in ("a", "b"):
        stores["services"].upsert(service(name))
    await renderer.render(stores)
    provenance = renderer.provenance()
    assert provenance is not None

    maker = provenance.maker_of("haproxy.cfg", 4)
    assert maker is not None
    assert maker.origin is not None
    assert (str(maker.origin.subject), maker.origin.template, maker.origin.line) == (
        "Service default/b",
        "haproxy.cfg",
        2,
    )
    assert maker.dependencies == ("file general/b", "resources.services.get('default', 'b')")
    outside = provenance.maker_of("haproxy.cfg", 1)
    assert outside is not None
    assert (outside.output, outside.origin) == ("haproxy.cfg", None)
    of_file = provenance.maker_of("general/a", 1)
    assert of_file is not None
    assert of_file.origin is not None
    assert (of_file.output, of_file.origin.subject.name) == ("haproxy.cfg", "a")
    assert provenance.maker_of("haproxy.cfg", 6) is provenance.maker_of("maps/none.map", 1) is None

    of_map, of_config = provenance.made_by("Service", "default", "b")
    assert [(item.first, item.last) for item in of_map.lines["maps/m.map"]] == [(2, 2)]
    assert [(item.first, item.last) for item in of_config.lines["haproxy.cfg"]] == [(4, 5)]
    assert (of_map.files, of_config.files) == ((), ("general/b",))
    assert provenance.made_by("Service", "default", "nobody") == []


READING = "global\n{% if resources.services.list() | length > 1 %}# {{ resources.pods.list() | length }}{% endif %}\n"
WATCHED = {name: {"apiVersion": "v1", "resources": name} for name in ("services", "pods")}


async def test_what_is_rendered_depends_on_the_stores_that_were_asked() -> None:
    config = config_of(READING, watchedResources=WATCHED)
    stores = stores_of(config)
    renderer = Renderer(config)
    assert await renderer.reads(["services"])
    assert await renderer.reads(["pods"])

    await renderer.render(stores)
    assert await renderer.reads(["pods", "services"])
    assert not await renderer.reads(["pods"])

    stores["services"].upsert(service("a"))
    stores["services"].upsert(service("b"))
    await renderer.render(stores)
    assert await renderer.reads(["pods"])


async def test_change_of_a_store_that_no_template_reads_leaves_the_newest_render_as_it_is() -> None:
    config = config_of(READING, watchedResources=WATCHED)
    stores = stores_of(config)
    renderer = Renderer(config)
    await renderer.render(stores)

    stores["pods"].upsert(service("unread"))
    assert renderer.newest(stores) is not None
    stores["services"].upsert(service("a"))
    assert renderer.newest(stores) is None


async def test_while_something_is_rendered_it_may_come_to_depend_on_anything() -> None:
    config = config_of(READING, watchedResources=WATCHED)
    stores = stores_of(config)
    renderer = Renderer(config)
    await renderer.render(stores)
    stores["services"].upsert(service("a"))
    stores["services"].upsert(service("b"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(renderer.render, stores)
        await trio.testing.wait_all_tasks_blocked()
        # The answer waits for the end.
        assert await renderer.reads(["pods"])


async def test_after_a_failed_render_everything_may_matter() -> None:
    config = config_of("{{ resources.services.list()[0].x.y }}\n")
    renderer = Renderer(config)
    with pytest.raises(RejectedError):
        await renderer.render(stores_of(config))

    assert await renderer.reads(["pods"])
