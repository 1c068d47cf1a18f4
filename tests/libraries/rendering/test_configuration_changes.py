"""A changed ConfigMap renders only the fragments that depend on the difference, over the shipped libraries."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from haptic_trio.config.model import Config, Snippet
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.render import Renderer
from tests.support.components.pipeline import stores_of
from tests.support.components.rendering import KINDS, library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

LIBRARIES = ("base", "ssl", "ingress", "haproxy-org-annotations", "haproxy-ingress-annotations", "nginx-annotations")
COUNT = 20


def make_config(libraries: tuple[str, ...], snippets: dict[str, str], **settings: Any) -> Config:
    user = Config(template_snippets={name: Snippet(template=text) for name, text in snippets.items()})
    return library_config(*libraries, user=user, **settings)


def objects(count: int = COUNT) -> Iterator[Resource]:
    for number in range(count):
        name = f"web-{number}"
        yield service(name, {"name": "http", "port": 80})
        yield endpoint_slice(name, endpoint("10.0.0.1"), ports={"http": 8080})
        yield ingress(name, rule(f"{name}.example.com", path("/", name, 80)))


def filled(config: Config, count: int = COUNT) -> Stores:
    stores = stores_of(config)
    for resource in objects(count):
        for name, watched in config.watched_resources.items():
            if KINDS[watched.resources] == resource["kind"]:
                stores[name].upsert(resource)
    return stores


def rendered_fragments(before: Config, after: Config, marker: str) -> int:
    """Return how many fragments the change from *before* to *after*, which adds *marker*, renders."""
    former, stores = Renderer(before), filled(before)
    assert former.render_here(stores).fragments_rendered > 2 * COUNT
    renderer, others = Renderer(after), stores_of(after)
    others.take_over(stores, stores.keys())
    renderer.take_over(former, others, frozenset())()
    rendered = renderer.render_here(others)
    assert rendered.text == Renderer(after).render_here(stores).text
    assert marker in rendered.text
    return rendered.fragments_rendered


@pytest.mark.parametrize("libraries", [LIBRARIES, ("base", "ssl", "ingress")], ids=["all", "default"])
@pytest.mark.parametrize(
    ("name", "template", "marker"),
    [
        ("global-mine", "    description mine-{}\n", "description mine-2"),
        ("global-mine", "    lua-load /mine-{}.lua\n", "lua-load /mine-2.lua"),
        ("frontend-rules-mine", "http-response set-header X-Mine {}\n", "X-Mine 2"),
        ("defaults-mine", "    timeout queue {}s\n", "timeout queue 2s"),
        ("frontends-mine", "listen mine\n    bind 127.0.0.1:{}\n", "bind 127.0.0.1:2"),
    ],
)
def test_snippet_outside_of_backends_renders_no_object_again(
    libraries: tuple[str, ...], name: str, template: str, marker: str
) -> None:
    absent, one, two = (
        make_config(libraries, {name: template.format(number)} if number else {}) for number in range(3)
    )
    assert rendered_fragments(one, two, marker) == 0
    assert rendered_fragments(absent, two, marker) == 0


@pytest.mark.parametrize("libraries", [LIBRARIES, ("base", "ssl", "ingress")], ids=["all", "default"])
@pytest.mark.parametrize(
    ("settings", "marker"),
    [
        ({"maxconn": 777}, "maxconn 777"),
        ({"hardStopAfter": "77s"}, "hard-stop-after 77s"),
        ({"balance": "leastconn"}, "balance leastconn"),
        ({"timeoutServer": "77s"}, "timeout server 77s"),
        ({"accessLog": True}, "option httplog"),
    ],
    ids=str,
)
def test_setting_outside_of_backends_renders_no_object_again(
    libraries: tuple[str, ...], settings: dict[str, Any], marker: str
) -> None:
    before, after = make_config(libraries, {}), make_config(libraries, {}, **settings)
    assert rendered_fragments(before, after, marker) == 0


def test_line_of_each_backend_renders_them_again() -> None:
    before = make_config(("base", "ssl", "ingress"), {})
    line = " from profile-http"
    text = before.template_snippets["backends-ingress"].template.replace(line, f"{line}\n    retries 2")
    after = make_config(("base", "ssl", "ingress"), {"backends-ingress": text})
    assert rendered_fragments(before, after, "retries 2") == COUNT


async def garbage_of(count: int) -> int:
    """Return the number of objects that only a collection frees after a renderer of *count* Ingresses."""
    config = make_config(LIBRARIES, {})
    renderer, stores = Renderer(config), filled(config, count)
    renderer.render_here(stores)
    gc.collect()
    await renderer.dismantle()
    del renderer, stores
    return gc.collect()


async def test_former_renderer_is_freed_again_after_a_call_that_was_cancelled() -> None:
    config = make_config(LIBRARIES, {})
    renderer = Renderer(config)
    renderer.render_here(filled(config, 10))
    with trio.move_on_after(0) as cancelled:
        await renderer.dismantle()
    await renderer.dismantle()
    await renderer.dismantle()
    assert cancelled.cancelled_caught


async def test_former_renderer_is_freed_without_a_collection_whatever_its_size() -> None:
    gc.disable()
    try:
        small, large = await garbage_of(10), await garbage_of(200)
    finally:
        gc.enable()
    assert large < small + 200
