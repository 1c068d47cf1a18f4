"""From templates and objects to texts and files, within limits, and off the event loop."""

import time
from typing import Any

import pytest
import trio

from haptic_trio.haproxy.model import FileKind
from haptic_trio.pipeline.refusal import RefusedError
from haptic_trio.pipeline.render import Rendered, Renderer
from tests.support.kubernetes import service
from tests.support.pipeline import config_of, stores_of

ENDLESS = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"


async def render(template: str, *names: str, **fields: Any) -> Rendered:
    config = config_of(template, **fields)
    stores = stores_of(config)
    for name in names:
        stores["services"].upsert(service(name))
    return await Renderer(config).render(stores)


async def refusal_of(template: str, *names: str, **fields: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
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

    assert {(file.path, file.kind, file.secret) for file in rendered.files} == {
        ("m/host.map", FileKind.MAP, False),
        ("g/503.http", FileKind.FILE, False),
        ("s/web.pem", FileKind.CERT, True),
        ("s/all.txt", FileKind.CRT_LIST, False),
    }


async def test_file_that_is_made_while_rendering_is_one_of_the_files() -> None:
    rendered = await render("{% set key %}secret{% endset %}# {{ files.cert('a.pem', key) }}\n")

    [file] = rendered.files
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
    error = await refusal_of(
        "global\n{{ nothing.here }}\n", maps={"host.map": {"template": "\n\n{{ fail('no hosts') }}\n"}}
    )

    assert error.phase == "render"
    assert [(problem.source, problem.line) for problem in error.problems] == [("maps/host.map", 3), ("haproxy.cfg", 2)]
    assert error.problems[0].message == "no hosts"
    assert "nothing.here" in error.problems[1].excerpt


async def test_runaway_template_is_stopped_at_the_time_limit() -> None:
    began = time.monotonic()

    error = await refusal_of(ENDLESS, templating={"libraries": [], "renderTimeout": "100ms"})

    assert time.monotonic() - began < 2
    assert "took longer than 0.1 s" in error.problems[0].message
    assert (error.problems[0].source, error.problems[0].line) == ("haproxy.cfg", 1)


async def test_runaway_template_of_one_object_is_no_fault_of_that_object() -> None:
    template = "{% for s in resources.services.list() %}{% fragment 'x' for s %}" + ENDLESS
    template += "{% endfragment %}{% endfor %}"

    error = await refusal_of(template, "web", templating={"libraries": [], "renderTimeout": "50ms"})

    assert error.suspects == {}
    assert error.problems[0].subject == "Service default/web"


async def test_output_that_grows_without_end_is_stopped() -> None:
    error = await refusal_of(
        "{% for i in range(100000) %}0123456789\n{% endfor %}", templating={"libraries": [], "maxOutputBytes": 10_000}
    )

    assert "grew beyond 10,000 bytes" in error.problems[0].message


async def test_event_loop_goes_on_while_a_template_runs() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.001)
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await refusal_of(ENDLESS, templating={"libraries": [], "renderTimeout": "300ms"})
        nursery.cancel_scope.cancel()

    assert turns > 10


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
    assert time.monotonic() - began < 1

    # It renders one at a time: the next one begins when the thread of the former has ended.
    with trio.fail_after(5):
        rendered = await renderer.render(stores_of(config))

    assert rendered.text == "global\n"
