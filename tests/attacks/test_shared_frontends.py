"""No object adds lines to a frontend that others use: what a request costs there does not grow with their objects."""

import pytest

from haptic_trio.pipeline.render import Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.attacks.inputs.samples import SAMPLES, shared
from tests.attacks.inputs.shapes import sections
from tests.attacks.inputs.tenants import Sample, Tenant, cluster
from tests.bad_inputs.world import LIBRARIES, stores_of
from tests.support.components.rendering import library_config

FEW, MANY = 1, 6


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(library_config(*LIBRARIES, sslRedirect=True))


def frontends(renderer: Renderer, sample: Sample, copies: int) -> dict[str, int]:
    """Return the number of lines of each frontend with so many copies of *sample*, all of one tenant."""
    config = library_config(*LIBRARIES, sslRedirect=True)
    stores = make_stores(config)
    # The first sample has a certificate, so there is an HTTPS frontend.
    objects = [*cluster(), *shared("attacker", 1), *SAMPLES[0].build(Tenant("attacker", MANY, 2))]
    for number in range(copies):
        objects += sample.build(Tenant("attacker", number, 2))
    for one in objects:
        for store in stores_of(config, stores, one):
            store.upsert(one)
    rendered = renderer.render_here(stores)
    assert rendered.rejections == ()
    return {name: len(lines) for name, lines in sections(rendered.text).items() if name.startswith("frontend ")}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_lines_of_a_shared_frontend_do_not_grow_with_objects(renderer: Renderer, sample: Sample) -> None:
    few, many = frontends(renderer, sample, FEW), frontends(renderer, sample, MANY)

    assert {"frontend http", "frontend https"} <= set(few)
    assert {name: many[name] for name in few} == few
