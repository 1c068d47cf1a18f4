"""Hosts of the victim, and Locations: whatever host a tenant names and wherever its redirects lead."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.inputs.mutations import HOWS, Leaf, Mutation, batches, leaves, samples, tenant_of
from tests.attacks.inputs.tenants import NAMED_BELOW, VICTIM_HOSTS, WILDCARDS
from tests.attacks.inputs.values import BREAKS, LOG_FORMAT
from tests.attacks.redirects import faulty_items, faulty_redirects, foreign_redirects, is_sent_to_https
from tests.attacks.site import Site
from tests.attacks.test_objects import IS_DEEP, Trial

HOSTS = (*VICTIM_HOSTS, *WILDCARDS, *NAMED_BELOW)
LOCATIONS = (
    *LOG_FORMAT,
    *BREAKS,
    "https://a.test/%0d%0aX-Injected: yes",
    "//victim.test",
    "https://plain0.victim.test",
)


EVERY = 1 if IS_DEEP else 5
"""A sample with more than `FEW` places gets every fifth location at each one, shifted by one from place to place."""
FEW = 4


@pytest.fixture
def trial(site: Site, tmp_path: Path) -> Trial:
    return Trial(site, tmp_path)


def texts_with(word: str) -> Iterator[tuple[str, list[Leaf]]]:
    """Yield each sample with the places of it whose text, or whose path, has *word*."""
    for name, sample in samples().items():
        objects = sample.build(tenant_of(1))
        found = [leaf for leaf in leaves(name) if not leaf.of_key and word in f"{leaf} {_text_at(objects, leaf)}"]
        if found:
            yield name, found


def _text_at(objects: list[Any], leaf: Leaf) -> Any:
    """Return what *objects* have at *leaf*; None for a field that only the schemas have."""
    found: Any = objects[leaf.object]
    for step in leaf.path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            return None
    return found


NAMING = dict(texts_with(".attacker.test"))
LEADING = {name: places for word in ("edirect", "app-root") for name, places in texts_with(word)}


@pytest.mark.haproxy
@pytest.mark.parametrize("name", NAMING)
def test_every_way_to_name_a_host_of_the_victim_leaves_it_what_it_was(trial: Trial, name: str) -> None:
    """Its certificate, its backends, and whether plain requests for it are sent to HTTPS; hosts below wildcards too."""
    first, *others = NAMING[name]
    alone = [Mutation(leaf, host) for leaf in (first, *others) for host in HOSTS]
    together = [Mutation(first, host, "instead", tuple(Mutation(leaf, host) for leaf in others)) for host in HOSTS]
    for some in batches([*alone, *together], samples()[name].copies):
        trial.run(some)


@pytest.mark.haproxy
@pytest.mark.parametrize("name", LEADING)
def test_no_location_has_more_than_data_in_it(trial: Trial, name: str) -> None:
    """Neither what HAProxy reads in a log-format string, nor the end of a header."""
    every = EVERY if len(LEADING[name]) > FEW else 1
    some = [
        Mutation(leaf, text, HOWS[(number + at) % len(HOWS)])
        for at, leaf in enumerate(LEADING[name])
        for number, text in enumerate(LOCATIONS)
        if (number + at) % every == 0
    ]
    for batch in batches(some, samples()[name].copies):
        trial.run(batch)


def test_every_redirect_is_tried() -> None:
    of_annotations = {"nginx/permanent-redirect", "nginx/app-root", "haproxyIngress/redirect-to", "nginx/ssl-redirect"}

    assert {"redirects", "nginx", "http", *of_annotations} <= LEADING.keys()
    assert {"wild", "plain", "redirects", "http", "gateway", "nginx/server-alias"} <= NAMING.keys()


@pytest.mark.parametrize(
    ("line", "is_faulty"),
    [
        ("http-request redirect location '/a%%[src]' code 302", False),
        ("http-request redirect location https://%[var(txn.host)]:8443%[pathq] code 302 if { path / }", False),
        ("http-request redirect location '/a%[src]' code 302", True),
        ("http-request redirect location '/a%%%ci' code 302", True),
        ("http-request redirect prefix '/a b' code 302", True),
        ("http-request redirect scheme %[env(HOME)]", True),
        ("http-request set-header location %[src]", False),
    ],
)
def test_expressions_of_data_in_a_location_are_seen(line: str, is_faulty: bool) -> None:
    text = f"backend attacker_a_80\n    {line}\n"

    assert bool(list(faulty_redirects(text))) == is_faulty
    assert list(foreign_redirects(text, "attacker")) == []
    assert bool(list(foreign_redirects(text, "victim"))) == (" redirect " in line)


@pytest.mark.parametrize(
    ("item", "is_faulty"),
    [
        ("rd,https,to.test,8443,302,f,%2Fa%20b".replace("%20b", "%25b") + ",", False),
        ("rd,,,,301,,,", False),
        ("rd,https,a%0D%0Ax,,302,,,", True),
        ("rd,https,a.test,1%0D%0AX-Injected%3A,302,,,", True),
        ("rd,javascript,a.test,,302,,,", True),
        ("rd,https,a.test,,302,f,%2Fa%0Ab,", True),
        ("rd,https,a.test,,302,f,evil.test,", True),
    ],
)
def test_redirects_of_gateways_that_are_no_urls_are_seen(item: str, is_faulty: bool) -> None:
    assert bool(list(faulty_items(f"rule hs,x-a,b;{item}"))) == is_faulty


def test_hosts_are_sent_to_https_as_haproxy_looks_them_up() -> None:
    files = {"maps/tls-host.map": "a.test yes\n*.b.test yes\n-x.b.test yes\n"}
    hosts = ("a.test", "y.b.test", "x.b.test", "b.test", "z.y.b.test")

    assert [host for host in hosts if is_sent_to_https(host, files)] == ["a.test", "y.b.test"]
