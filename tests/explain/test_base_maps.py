"""The look-ups of the library `base` in Python, against those of a real HAProxy."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.explain.base_maps import (
    EXACT,
    PREFIX,
    MapEntry,
    RouteMap,
    look_up,
    plain_host,
    read_entries,
    scopes_of,
)
from haptic_trio.explain.routes import explain_route
from haptic_trio.haproxy.config.maps import parse_map_file
from tests.explain.sites import Workshop
from tests.support.kubernetes import ingress, path, rule, service, service_backend
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import check, running
from tests.support.traffic.servers import ask

REPORT = (
    '    http-request return status 200 content-type text/plain lf-string "%[var(txn.backend)]" if { always_true }\n'
)
HOSTS = (
    "a.example.com",
    "A.Example.com",
    "a.example.com.",
    "a.example.com:81",
    "b.example.com",
    "near.example.com",
    "x.b.example.com",
    "example.com",
    "com",
    "other.org",
    "*.example.com",
    "a|b",
    "[::1]",
    "[::1]:80",
    "sub.wild.test",
    "wild.test",
)
PATHS = ("/", "/a", "/a/", "/a/b", "/a/b/", "/ab", "/A", "/a/bc/d", "/a//b", "/c", "/c/x", "/a%2Fb", "/e", "/e/")
SPELLINGS = (
    "//a/b",
    "/x/../a/b",
    "/%61/b",
    "/a;x",
    "/a/b;x",
    "/a/b;/x",
    "/c%2fx",
    "/c/%5cx",
    "/a%zz",
    "/a/..;/b",
    "/a.",
    "/%C3%A9",
    "/x%00",
    "/g;/x",
    "/g/;/x",
    "/g%2F;/x",
    "/g/x%2Fy",
    "/h;/x",
)


def rules(wide: str = "default") -> list[dict[str, object]]:
    """Return Ingresses, those with wildcards and with rules for every host in the namespace *wide*."""
    return [
        ingress("a1", rule("a.example.com", path("/a", "s1"), path("/a/b", "s2", kind="Exact"), path("/a/b", "s3"))),
        ingress("a2", rule("a.example.com", path("/a/b", "s4"), path("/a/b", "s5", kind="Exact")), age=2),
        ingress("near", rule("near.example.com", path("/g", "s2", kind="Exact"), path("/g/", "s3", kind="Exact"))),
        ingress(
            "wild",
            rule(
                "*.example.com",
                path("/c", "s6"),
                path("/g", "s6"),
                *(path(one, "s7", kind="Exact") for one in ("/a", "/h")),
            ),
            namespace=wide,
        ),
        ingress("wild2", rule("*.wild.test", path("/", "s1")), defaultBackend=service_backend("s8")),
        ingress(
            "any", rule(None, path("/e", "s9"), path("/h", "s9"), path("/e/", "s10", kind="Exact")), namespace=wide
        ),
        ingress("b", rule("b.example.com", path("/a", "gone")), defaultBackend=service_backend("s11")),
        *(service(f"s{number}") for number in range(1, 12)),
    ]


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "context",
    [
        {},
        {"hostOwnership": "namespace"},
        {"hostOwnership": "namespace", "catchAllNamespaces": ["wide"]},
    ],
    ids=["shared", "owned", "trusted"],
)
def test_routes_are_those_of_haproxy(tmp_path: Path, haproxy_binary: Path, context: dict[str, Any]) -> None:
    port = free_port()
    objects = rules("wide" if context else "default")
    report = {"frontend-routing-tell": REPORT}
    workshop = Workshop(objects, snippets=report, bindAddress="127.0.0.1", httpPort=port, **context)
    rendered = workshop.render()
    site = workshop.site()
    files = {file.path: file.content.decode() for file in rendered.files.values()}
    assert check(tmp_path, rendered.text, files) == ""

    with running(tmp_path, rendered.text, files, port=port):
        for host, requested in product(HOSTS, PATHS + SPELLINGS):
            answer = ask(port, host, requested)
            explained = explain_route(site, host, requested)
            if answer.status == 200:
                assert (explained.status in {0, 404, 503}, explained.backend) == (True, answer.body.strip("-")), (
                    host,
                    requested,
                )
            else:
                assert explained.status == answer.status == 400, (host, requested)


@pytest.mark.haproxy
def test_statuses_are_those_of_haproxy(tmp_path: Path, haproxy_binary: Path) -> None:
    port = free_port()
    workshop = Workshop(rules(), bindAddress="127.0.0.1", httpPort=port)
    rendered = workshop.render()
    site = workshop.site()
    files = {file.path: file.content.decode() for file in rendered.files.values()}

    with running(tmp_path, rendered.text, files, port=port):
        for host, requested in product(HOSTS, PATHS + SPELLINGS):
            answer = ask(port, host, requested)
            explained = explain_route(site, host, requested)
            own = "503: the service behind this route" in answer.body
            # A backend that exists has no servers here, which HAProxy says in other words.
            assert (503 if own else 0 if answer.status == 503 else answer.status) == explained.status, (host, requested)


WORDS = st.text("ab*.|/", max_size=6)


@given(st.lists(st.tuples(WORDS.filter(bool), st.text("xyz", min_size=1, max_size=2)), max_size=8), WORDS, WORDS)
def test_matches_agree_with_the_definition(items: list[tuple[str, str]], host: str, requested: str) -> None:
    entries = [MapEntry(line, key, value) for line, (key, value) in enumerate(items, 1)]
    maps = {EXACT: RouteMap(entries), PREFIX: RouteMap(entries)}

    found = look_up(maps, host, requested)

    assert [lookup.map for lookup in found] == [EXACT, PREFIX] * len(scopes_of(host))
    for lookup in found:
        wanted = {entry for entry in entries if entry.key == lookup.key}
        if lookup.map == PREFIX:
            wanted = {entry for entry in entries if lookup.key.startswith(entry.key)}
        assert set(lookup.matches) == wanted
        assert list(lookup.matches) == sorted(wanted, key=lambda entry: (-len(entry.key), entry.line))


@given(st.text("ab|/# \t\r\n\x0b\xa0", max_size=40))
def test_entries_are_read_as_haproxy_reads_them(text: str) -> None:
    entries = list(read_entries(text))

    assert tuple((entry.key, entry.value) for entry in entries) == parse_map_file(text.encode())
    lines = text.split("\n")
    assert all(entry.key in lines[entry.line - 1] for entry in entries)


@pytest.mark.parametrize(
    ("given_host", "expected"),
    [
        ("A.Example.COM.", "a.example.com"),
        ("a.example.com:8443", "a.example.com"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("", ""),
    ],
)
def test_a_host_is_taken_without_what_does_not_count(given_host: str, expected: str) -> None:
    assert plain_host(given_host) == expected


def test_scopes_go_from_narrow_to_wide() -> None:
    assert scopes_of("a.b.c") == ("a.b.c", "*.b.c", "*")
    assert scopes_of("localhost") == ("localhost", "*")
