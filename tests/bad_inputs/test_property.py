"""4 in one sentence: whatever stands in any text of any object, nothing but the templates writes configuration."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from haptic_trio.embedded.fixtures import make_stores
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.pipeline.render import Rendered, Renderer
from tests.bad_inputs.objects import rich_objects
from tests.bad_inputs.vocabulary import foreign_syntax
from tests.bad_inputs.world import LIBRARIES, stores_of
from tests.support.rendering import library_config

Place = tuple[str | int, ...]

# Weighted to what HAProxy, maps, crt-lists and templates read as syntax.
NASTY = [
    "\n", "\r\n", "\r", "\t", "\0", "\x0b", "\x85", "\u2028", "\u2029", "\ufeff", " ", "  ", "'", '"', "\\", "\\\n",
    "#", " #", "%", "%%", "%[env(HOME)]", "%[src]", "%ci", "%{+Q}o", "${HOME}", "$HOME", "$1", "\\1", "$(id)", "{", "}",
    " } ", "{{ 7 * 7 }}", "{%", "[", "]", "[alpn h2]", "(", ")", "|", ",", ";", "=", "&", ">", "?", "!", "*", "~", "@",
    "..", "/", "//", "/../", "%2f", ":", "::", "-", "--", " if TRUE", " unless FALSE", "\n    http-request deny\n",
    "\nbackend injected\n", "\nfrontend f\n    bind :99\n", "x y z", "\ud800", "\ufdd0", "\U0001f984", "\u00e4",
    "a" * 300,
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "MIIB", "0", "-1", "1e9", "true", "null", "*.",
]  # fmt: skip
TEXT = st.lists(st.sampled_from(NASTY) | st.text(max_size=3), min_size=1, max_size=4).map("".join)
LINES = {
    "maps/path-exact.map": r"[a-z0-9.*-]+\|/[^\s|#]* [A-Za-z0-9_.:-]+",
    "maps/path-prefix.map": r"[a-z0-9.*-]+\|(/[^\s|#]*)? [A-Za-z0-9_.:-]+",
    "maps/tls-host.map": r"[a-z0-9.*-]+ yes",
    # A value goes on to the end of its line: there are no blanks at either end that would be lost.
    "maps/gateway-exact.map": r"[A-Za-z0-9._~%/-]+\|[a-z0-9.*-]+\|/\S* \S(.*\S)?",
    "maps/gateway-prefix.map": r"[A-Za-z0-9._~%/-]+\|[a-z0-9.*-]*\|/?\S* \S(.*\S)?",
    "maps/gateway-listeners.map": r"[A-Za-z0-9_.:-]+\|[a-z0-9.*-]+ \S(.*\S)?",
    "maps/gateway-rules.map": r"\S+ \S(.*\S)?",
}
# What of others is refused for it: who has asked for what it holds, and nobody else.
ASKERS = {"EndpointSlice": {"Service", "Ingress"}, "Secret": {"Ingress"}}
ENTRY = r"[A-Za-z0-9_./:-]+(?: \[[^\]\n]*\])?(?: [a-z0-9.*-]+)*"


class Site:
    """All the objects, one of which is another one for a while."""

    def __init__(self) -> None:
        self.config = library_config(*LIBRARIES, sslRedirect=True)
        self.stores = make_stores(self.config)
        self.renderer = Renderer(self.config)
        self.objects = rich_objects()
        for one in self.objects:
            self.put(one)
        self.places = [(number, place) for number, one in enumerate(self.objects) for place in places_in(one)]
        self.plain = self.render()
        assert self.plain.refusals == ()
        assert foreign_syntax(self.plain.text) == []

    def put(self, one: Resource) -> None:
        for store in stores_of(self.config, self.stores, one):
            store.upsert(one)

    def remove(self, one: Resource) -> None:
        for store in self.stores.values():
            if store.by_ref(ref_of(one)) is not None:
                store.delete(ref_of(one))

    def render(self) -> Rendered:
        return self.renderer.render_here(self.stores)

    def render_with(self, number: int, changed: Resource) -> Rendered:
        """Render with *changed* in place of an object, which is there again afterwards."""
        self.remove(self.objects[number])
        self.put(changed)
        try:
            return self.render()
        finally:
            self.remove(changed)
            self.put(self.objects[number])


def places_in(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield where *value* has texts; keys of annotations, labels and data are texts as well: an empty step follows."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if place and place[-1] in ("annotations", "labels", "data"):
                yield (*place, key, "")
            yield from places_in(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places_in(inner, (*place, index))
    elif isinstance(value, str) and place not in (("kind",), ("apiVersion",)):
        yield place


def changed(resource: Resource, place: Place, text: str, how: int) -> Resource:
    """Return *resource* with *text* for what is at *place*, or before, behind or within it."""
    result = copy.deepcopy(resource)
    where: Any = result
    of_key = place[-1] == ""
    *way, last = place[:-1] if of_key else place
    for step in way:
        where = where[step]
    before = str(last if of_key else where[last])
    middle = len(before) // 2
    after = [text, text + before, before + text, before[:middle] + text + before[middle:]][how]
    if of_key:
        where[after] = where.pop(last)
    else:
        where[last] = after
    return result


SITE = Site()


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    assert SITE.render().text == SITE.plain.text


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(SITE.places), TEXT, st.integers(0, 3))
@example(SITE.places[0], "\n    http-request deny\n", 0)
def test_no_text_of_any_object_is_configuration(at: tuple[int, Place], text: str, how: int) -> None:
    number, place = at
    bad = changed(SITE.objects[number], place, text, how)

    # One that fails outside of all fragments would raise here: one object would be everybody's trouble.
    rendered = SITE.render_with(number, bad)

    kind = bad["kind"]
    assert {refusal.subject.kind for refusal in rendered.refusals} <= {kind} | ASKERS.get(kind, set())
    assert foreign_syntax(rendered.text) == []
    for file, found in rendered.texts.items():
        if file.startswith("maps/"):
            pattern = LINES.get(file, r"[0-9A-Za-z_.:/-]+ [A-Za-z0-9_.,:-]+")
            for line in found.text.split("\n"):
                assert not line or re.fullmatch(pattern, line), (file, line)
        elif file.endswith(".list"):
            for line in found.text.split("\n"):
                assert not line.strip() or re.fullmatch(ENTRY, line.strip()), (file, line)


def test_there_is_a_text_of_every_kind_and_of_every_field_that_matters() -> None:
    kinds = {SITE.objects[number]["kind"] for number, _ in SITE.places}

    assert kinds >= {
        *("Ingress", "IngressClass", "Secret", "Service", "EndpointSlice", "ConfigMap", "Namespace", "ReferenceGrant"),
        *(
            "GatewayClass",
            "Gateway",
            "ListenerSet",
            "HTTPRoute",
            "GRPCRoute",
            "TLSRoute",
            "TCPRoute",
            "BackendTLSPolicy",
        ),
    }
    assert len(SITE.places) > 400
