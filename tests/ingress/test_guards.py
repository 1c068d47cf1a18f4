"""Paths of a guarded Ingress, and which of a former version cover them."""

from typing import Any

import pytest

from haptic_trio.ingress.guards import places_of
from haptic_trio.ingress.served import Vendors, served_by
from tests.support.kubernetes import ingress, path, rule, service_backend

ALIAS = "nginx.ingress.kubernetes.io/server-alias"
VENDORS = Vendors({"nginx": {"prefix": "nginx.ingress.kubernetes.io/", "known": ["server-alias"]}})


def with_paths(*paths: dict[str, Any], host: str | None = "a.test", **fields: Any) -> list[list[str]]:
    """Return the places of an Ingress."""
    return list(places_of(served_by(ingress("a", rule(host, *paths), **fields), VENDORS)))


def covers(former: list[list[str]], now: list[list[str]]) -> bool:
    known = {names[0] for names in former}
    return all(not known.isdisjoint(names) for names in now)


EXACT = path("/a", "web", kind="Exact")
BELOW = path("/a", "web")


@pytest.mark.parametrize(
    ("former", "now", "is_covered"),
    [
        ([BELOW], [BELOW], True),
        ([BELOW], [path("/a/b/", "web")], True),
        ([path("/", "web")], [path("/a/b", "web", kind="Exact")], True),
        ([BELOW], [EXACT], True),
        ([EXACT], [EXACT], True),
        ([EXACT], [BELOW], False),
        ([BELOW], [path("/ab", "web")], False),
        ([path("/a/b", "web")], [BELOW], False),
        ([BELOW, path("/c", "web")], [BELOW], True),
        ([BELOW], [BELOW, path("/c", "web")], False),
    ],
)
def test_a_former_version_covers_paths_that_it_has_or_has_a_prefix_of(
    former: list[dict[str, Any]], now: list[dict[str, Any]], is_covered: bool
) -> None:
    assert covers(with_paths(*former), with_paths(*now)) == is_covered


def test_hosts_aliases_and_default_backends_count() -> None:
    plain = with_paths(BELOW)
    assert not covers(plain, with_paths(BELOW, host="b.test"))
    assert not covers(plain, with_paths(BELOW, annotations={ALIAS: "b.test"}))
    assert not covers(plain, with_paths(BELOW, defaultBackend=service_backend("web")))
    assert covers(with_paths(BELOW, defaultBackend=service_backend("web")), with_paths(path("/c", "web")))
    assert covers(with_paths(BELOW, annotations={ALIAS: "b.test"}), with_paths(EXACT, host="b.test"))


def test_names_of_a_path_with_very_many_segments_are_bounded() -> None:
    (names,) = with_paths(path("/a" * 10_000, "web"))

    assert sum(map(len, names)) < 2_000
    assert covers([names], [names])
