"""Hosts, paths and certificates of one Ingress: they take time and memory in proportion to its size."""

import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.ingress.served import (
    COMPUTED_KEYS,
    HOSTS_INDEX,
    MOST_PAIRS,
    Served,
    Vendors,
    has_too_many_aliases,
    served_by,
    unused_certificates,
)
from haptic_trio.k8s.resource import Resource
from tests.support.kubernetes import ingress, path, rule, service_backend

ALIAS = "nginx.ingress.kubernetes.io/server-alias"
PREFIX = "nginx.ingress.kubernetes.io/"
NAMES = ["server-alias", "redirect-from", "from-to-www-redirect"]
VENDORS = Vendors({"nginx": {"prefix": PREFIX, "known": ["server-alias"]}})
ALL = Vendors({"nginx": {"prefix": PREFIX, "known": NAMES}})
HOSTS = st.sampled_from(["a.test", "www.a.test", "b.a.test", "*.a.test", "c.test"])
SIDE = int(MOST_PAIRS**0.5)


def aliased(aliases: int, paths: int) -> Resource:
    """Return an Ingress with as many aliases and paths."""
    names = ",".join(f"a{number}.test" for number in range(aliases))
    return ingress("a", rule("a.test", *(path(f"/{n}", "web") for n in range(paths))), annotations={ALIAS: names})


def with_secrets(hosts: int, secrets: int) -> Resource:
    """Return an Ingress with as many hosts, and Secrets without hosts."""
    rules = (rule(f"h{number}.test", path("/", "web")) for number in range(hosts))
    return ingress("a", *rules, tls=[{"secretName": f"s{number}"} for number in range(secrets)])


def served(one: Resource) -> Served:
    return served_by(one, VENDORS)


@given(
    st.lists(st.none() | HOSTS, max_size=2),
    st.dictionaries(st.sampled_from([PREFIX + name for name in NAMES]), HOSTS | st.just("true")),
    st.lists(HOSTS, max_size=2),
    st.fixed_dictionaries({}, optional={"defaultBackend": st.just(service_backend("web"))}),
)
def test_an_ingress_is_found_by_each_host_that_it_serves(
    hosts: list[str | None], annotations: dict[str, str], secured: list[str], more: dict[str, Any]
) -> None:
    rules = (rule(host, path("/", "web")) for host in hosts)
    one = ingress("a", *rules, annotations=annotations, tls=[{"hosts": secured}], **more)
    found = served_by(one, ALL)

    assert {*found.routes, *found.certificates} <= {*COMPUTED_KEYS[HOSTS_INDEX].find(one)}


def test_each_alias_has_all_paths() -> None:
    found = served(aliased(SIDE, SIDE))

    assert len(found.routes) == SIDE + 1
    assert found.routes["a7.test"] == found.routes["a.test"]
    assert not has_too_many_aliases(aliased(SIDE, SIDE), ALIAS)


def test_aliases_count_for_nothing_where_they_and_the_paths_are_too_many() -> None:
    one = aliased(SIDE + 1, SIDE)

    assert has_too_many_aliases(one, ALIAS)
    assert [*served(one).routes] == ["a.test"]


def test_a_secret_without_hosts_is_for_all_hosts() -> None:
    one = with_secrets(SIDE, SIDE)

    assert len(served(one).certificates["h7.test"]) == SIDE
    assert unused_certificates(one, served(one)) == ""


def test_secrets_without_hosts_are_not_used_where_they_and_the_hosts_are_too_many() -> None:
    one = with_secrets(SIDE + 1, SIDE)
    one["spec"]["tls"].append({"hosts": ["h7.test"], "secretName": "own"})

    assert {host: [named.secret for named in all_of] for host, all_of in served(one).certificates.items()} == {
        "h7.test": ["own"]
    }
    assert "too many" in unused_certificates(one, served(one))


def test_versions_of_a_large_ingress_do_not_stay_in_memory() -> None:
    labels, number = 4_000, 50
    tracemalloc.start()
    try:
        for version in range(number):
            one = ingress("a", rule("a.test", path("/", "web"), path(f"/{version}{'x' * 200_000}", "web")))
            one["metadata"]["labels"] = {f"label-{version}-{label}": "" for label in range(labels)}
            assert len(served(one).routes) == 1
            if not version:
                first, _ = tracemalloc.get_traced_memory()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < first * number / 2


def test_an_ingress_that_cannot_be_written_as_json_is_read() -> None:
    assert served(ingress("a", rule("a.test", path("/\ud800", "web")))).serves("a.test")
