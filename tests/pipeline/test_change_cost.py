"""The cost of a change of one object, counted in calls, does not depend on the number of other objects."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.validate import Validator
from tests.support.components.pipeline import stores_of
from tests.support.components.rendering import KINDS, library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.work import Work

LIBRARIES = ("base", "ssl", "ingress", "haproxy-org-annotations", "haproxy-ingress-annotations", "nginx-annotations")


def slice_of(number: int, address: str) -> Resource:
    return endpoint_slice(f"web-{number}", endpoint(address), ports={"http": 8080})


def objects(size: int) -> Iterator[Resource]:
    for number in range(size):
        name = f"web-{number}"
        yield service(name, {"name": "http", "port": 80})
        yield slice_of(number, "10.0.0.1")
        yield ingress(name, rule(f"{name}.example.com", path("/", name, 80)))


async def calls_to_parse(binary: Path, libraries: tuple[str, ...], size: int) -> int:
    """Return the calls that the parser makes for another address of one endpoint among *size* Services."""
    config = library_config(*libraries)
    stores = stores_of(config)
    for resource in objects(size):
        for name, watched in config.watched_resources.items():
            if KINDS[watched.resources] == resource["kind"]:
                stores[name].upsert(resource)
    renderer, quarantine = Renderer(config), Quarantine()
    validator = Validator(binary, check_timeout=10)
    await validator.parse(await renderer.render(stores, quarantine.recall()))
    stores["endpointSlices"].upsert(slice_of(size // 2, "10.0.0.2"))
    rendered = await renderer.render(stores, quarantine.recall())
    with Work() as work:
        generation = await validator.parse(rendered)
    assert "10.0.0.2:8080" in generation.text
    return work.calls


@pytest.mark.haproxy
@pytest.mark.parametrize("libraries", [LIBRARIES, ("base", "ssl", "ingress")], ids=["all", "default"])
async def test_parser_reads_only_what_an_endpoint_changes(haproxy_binary: Path, libraries: tuple[str, ...]) -> None:
    small, large = [await calls_to_parse(haproxy_binary, libraries, size) for size in (70, 700)]

    assert large < 2 * small
