"""24 and 15: templates that never end or never stop writing, data that wants out of them, and very many objects."""

from typing import Any

import pytest
import trio

from haptic_trio.dataplane.binary import find_haproxy
from haptic_trio.pipeline.rejection.errors import RejectedError
from tests.bad_inputs.world import NGINX, Case, World, annotated, evil, evil_route
from tests.k8s.objects import service
from tests.support.components.pipeline import Bench
from tests.support.kubernetes import path

pytestmark = pytest.mark.haproxy

GOOD = """\
global
    maxconn 100
defaults d
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend f from d
    bind 127.0.0.1:18080
"""
EACH = (
    GOOD
    + """
{% each s in resources.services as "s" %}
backend {{ s.metadata.name | name }} from d
{% if s.spec.bad is defined %}BAD{% endif %}
{% endeach %}
"""
)
LIMITS: dict[str, Any] = {"templating": {"renderTimeout": "300ms", "maxOutputBytes": 5_000_000}}
WATCHED: dict[str, Any] = {"watchedResources": {"services": {"apiVersion": "v1", "resources": "services"}}}
ENDLESS = {
    "loop": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "recursion in turns": "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
    "output": "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
    "a gigabyte at once": '{{ ("x" * 1000000000) }}',
    "a gigabyte in turns": "{% set n = namespace(x='xxxxxxxxxx') %}{% for a in range(40) %}{% set n.x = n.x ~ n.x %}"
    "{% endfor %}{{ n.x }}",
    "number": "{{ 9 ** 9 ** 9 }}",
    "width": "{{ '%999999999d' % 1 }}",
    "range": "{{ range(999999999999) | list }}",
}
OF_ONE = {
    "undefined": "{{ s.spec.nothing.at.all }}",
    "type": "{{ s.spec.bad + 1 }}",
    "division": "{{ 1 / 0 }}",
    "text": "{{ s.spec.bad }}",
    "no such template": "{% include s.spec.bad %}",
    "class": "{{ s.__class__.__mro__ }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "attribute": "{{ s | attr('__class__') }}",
    "format": "{{ '{0.__class__}'.format(s) }}",
    "keyword": "no-such-keyword",
    "section": "frontend f",
}


@pytest.mark.parametrize("fault", [pytest.param(text, id=name) for name, text in ENDLESS.items()])
async def test_24_what_never_ends_is_ended_and_the_deployed_configuration_stays(fault: str) -> None:
    bench = Bench(find_haproxy(), GOOD + fault + "\n", **LIMITS, **WATCHED)

    with trio.fail_after(30), pytest.raises(RejectedError) as rejected:
        await bench.run()

    assert rejected.value.problems


@pytest.mark.parametrize("fault", [pytest.param(text, id=name) for name, text in OF_ONE.items()])
async def test_24_a_fault_that_one_object_brings_about_is_that_object_s_alone(fault: str) -> None:
    bench = Bench(find_haproxy(), EACH.replace("BAD", fault), **WATCHED)
    bench.put(service("good", spec={}), service("evil", spec={"bad": "a b {{ 7 * 7 }}"}))

    valid = await bench.run()

    assert [str(held.ref) for held in bench.quarantine.objects] == ["Service default/evil"]
    assert "backend good from d" in valid.generation.config.text
    assert "evil" not in valid.generation.config.text


JINJA = [
    "{{ 7 * 7 }}",
    "{% for a in range(9) %}x{% endfor %}",
    "{{ ''.__class__.__mro__ }}",
    "{{ resources.secrets.list() }}",
    "{# x #}",
    "\ufdd0\ufdd1",
]
PLACES = {
    "annotation": lambda text: annotated(NGINX, permanent_redirect=f"https://a.example.com/{text}"),
    "path": lambda text: evil(path(f"/{text}", "good")),
    "host": lambda text: evil(host=text),
    "host of a route": lambda text: evil_route(hostnames=[text]),
}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("text", JINJA)
async def test_24_text_of_an_object_is_never_a_template(world: World, where: str, text: str) -> None:
    resource = PLACES[where](text)
    rejected = () if where == "host of a route" else ("Ingress default/evil",)
    case = Case(number=24, name=where, objects=(resource,), rejected=rejected)

    outcome = await world.check(case)

    assert "/49" not in outcome.text + "".join(outcome.files.values())


async def test_15_10000_paths_in_one_ingress_and_1000_ingresses_are_served(world: World) -> None:
    many = evil(*(path(f"/{number}", "good") for number in range(10_000)))
    ingresses = [evil(name=f"i{number}", host=f"h{number}.example.com") for number in range(1_000)]
    with world.beside(many, *ingresses):
        outcome = await world.cycle()
        assert outcome.held == {}
        with world.serving(outcome):
            world.check_good()
            assert world.ask("evil.example.com", "/9999/x").status == 200
            assert world.ask("h999.example.com").status == 200


@pytest.mark.soak
async def test_15_10000_ingresses_are_served(world: World) -> None:
    ingresses = [evil(name=f"i{number}", host=f"h{number}.example.com") for number in range(10_000)]
    with world.beside(*ingresses):
        outcome = await world.cycle()
        assert outcome.held == {}
        with world.serving(outcome):
            world.check_good()
            assert world.ask("h9999.example.com").status == 200
