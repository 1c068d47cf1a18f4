"""Explanations agree with how the output changes when an object is removed."""

from collections import Counter
from typing import Any

import pytest

from haptic_trio.explain.answers import LineAnswer
from haptic_trio.explain.lines import explain_line
from haptic_trio.explain.site import Site
from haptic_trio.k8s.resource import Resource, ref_of
from tests.explain.sites import Workshop, secret
from tests.support.kubernetes import (
    endpoint,
    endpoint_slice,
    ingress,
    ingress_class,
    path,
    rule,
    service,
    service_backend,
)

KINDS_OF_PATHS = ("Prefix", "Exact", "ImplementationSpecific")


def fifty() -> list[Resource]:
    """Return a site of 50 Ingresses that share services, hosts, certificates and paths in many ways."""
    objects: list[Resource] = [ingress_class("other", "haptic-trio/ingress-controller")]
    for number in range(20):
        namespace = f"team-{number % 3}"
        named = {"name": "http", "port": 8000 + number, "protocol": "TCP"}
        objects.append(service(f"s{number}", named, namespace=namespace))
        for suffix in ("1", "2")[: 1 + number % 2]:
            address = f"10.0.{number}.{suffix}"
            slice_ = endpoint_slice(
                f"s{number}", endpoint(address), ports={"http": 80}, namespace=namespace, suffix=suffix
            )
            objects.append(slice_)
    for number in range(50):
        namespace, target = f"team-{number % 3}", number % 20
        host = ("*.wild.example.com", None)[number % 2] if number % 10 > 7 else f"h{number // 2}.example.com"
        port = (8000 + target, "http", 9999)[0 if number % 7 else number % 3]
        paths = [
            path(f"/p{number % 4}", f"s{target}", port, KINDS_OF_PATHS[number % 3]),
            path("/", f"s{(number + 3) % 20}", "http"),
        ]
        more: dict[str, Any] = {"defaultBackend": service_backend(f"s{target}", "http")} if number % 9 == 0 else {}
        if number % 5 == 0:
            more["tls"] = [{"hosts": [host or "x.example.com"], "secretName": f"c{number % 3}"}]
        chosen = "other" if number % 6 == 0 else "haptic"
        objects.append(
            ingress(
                f"i{number}", rule(host, *paths), namespace=namespace, ingress_class=chosen, age=1 + number % 28, **more
            )
        )
    objects += [secret(f"c{number}", f"c{number}.example.com", namespace=f"team-{number}") for number in range(3)]
    objects.append(ingress("outer", rule("a.b", path("/", "s0")), namespace="team-0", ingress_class="foreign"))
    return objects


@pytest.fixture(scope="module")
def workshop() -> Workshop:
    return Workshop(fifty(), sslRedirect=True)


def texts_of(workshop: Workshop) -> dict[str, Counter[str]]:
    return {path: Counter(text.text.split("\n")) for path, text in workshop.render().texts.items()}


def explained(site: Site) -> dict[tuple[str, str], list[LineAnswer]]:
    """Return what is said of every line, by path and text."""
    found: dict[tuple[str, str], list[LineAnswer]] = {}
    for path_ in site.texts:
        for number, text in enumerate(site.lines_of(path_), 1):
            found.setdefault((path_, text), []).append(explain_line(site, path_, number))
    return found


def test_each_line_names_what_makes_it_and_nothing_else_does(workshop: Workshop) -> None:
    answers = explained(workshop.site())
    before = texts_of(workshop)
    named: Counter[str] = Counter()
    for item in fifty_of(workshop):
        title = str(ref_of(item))
        workshop.remove(item)
        after = texts_of(workshop)
        workshop.put(item)
        for (path_, text), about in answers.items():
            lost = before[path_][text] - after.get(path_, Counter())[text]
            made = sum(str(answer.made_by.object) == title for answer in about)
            # It is the maker of as many of these lines as go with it at the least.
            assert lost >= made, (title, path_, text)
            named[title] += made
            if lost > 0 and not made:
                # What else goes with it depends on it, and says so.
                mentioned = {str(one) for answer in about for lookup in answer.depends_on for one in lookup.found}
                assert title in mentioned, (title, path_, text, mentioned)
    kinds = Counter(title.partition(" ")[0] for title, count in named.items() if count)
    # Some have what an older one of another namespace has, too.
    assert kinds["Ingress"] > 40
    assert kinds["Service"] == 20
    assert kinds["Secret"] == 3
    assert texts_of(workshop) == before


def fifty_of(workshop: Workshop) -> list[Resource]:
    """Return every object of the site once."""
    found = {str(ref_of(item)): item for store in workshop.stores.values() for item in store.list()}
    return list(found.values())


def test_an_object_lists_exactly_the_lines_that_name_it_as_maker(workshop: Workshop) -> None:
    site = workshop.site()
    by_line: dict[str, set[tuple[str, int]]] = {}
    for (path_, _), about in explained(site).items():
        for answer in about:
            if answer.made_by.object is not None:
                by_line.setdefault(str(answer.made_by.object), set()).add((path_, answer.line.line))

    for item in fifty_of(workshop):
        ref = ref_of(item)
        made = site.provenance.made_by(ref.kind, ref.namespace, ref.name)
        lines = {
            (path_, number)
            for one in made
            for path_, ranges in one.lines.items()
            for item_ in ranges
            for number in range(item_.first, item_.last + 1)
        }
        files = {
            (path_, number) for one in made for path_ in one.files for number in range(1, len(site.lines_of(path_)) + 1)
        }
        assert lines | files == by_line.get(str(ref), set())


def test_the_template_line_that_a_line_reads_like_is_the_one_it_came_from(workshop: Workshop) -> None:
    site = workshop.site()
    for (_, text), about in explained(site).items():
        for answer in about:
            for source in answer.sources:
                template = site.templates[source.template].split("\n")[source.line - 1]
                first = template.strip().partition("{")[0].strip()
                assert text.strip().startswith(first)
    servers = [about[0] for (_, text), about in explained(site).items() if text.strip().startswith("server ")]
    assert {(one.sources[0].template, len(one.sources)) for one in servers} == {("backends-ingress", 1)}
