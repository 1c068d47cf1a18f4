"""After each change, the incremental answer about the owner of a host equals that of a complete read."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import haptic_trio.ingress.owners
from haptic_trio.gateway.listeners.exclusions import Room
from haptic_trio.ingress.classes import OwnClasses
from haptic_trio.ingress.owners import Claimant, Exclusions, Owners, exclusions_of, owners_of
from haptic_trio.ingress.served import COMPUTED_KEYS, HOSTS_INDEX, PATHS_INDEX, Vendors, normal_path, partner_of
from haptic_trio.k8s.index import KeySchema
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Store
from tests.support.kubernetes import ingress, path, rule

OWN = OwnClasses("haptic", "haptic-trio/ingress-controller", without=False)
PREFIX = "nginx.ingress.kubernetes.io/"
VENDORS = Vendors(
    {
        "nginx": {
            "prefix": PREFIX,
            "known": ["server-alias", "from-to-www-redirect", "auth-tls-secret", "auth-tls-verify-client"],
            "canary": "canary",
            "passthrough": "ssl-passthrough",
            "patterns": ["use-regex"],
        }
    }
)
HOSTS = ("a.example", "b.example", "*.example")
NAMESPACES = ("one", "two", "three")
WIDE = ("2026-01-10T00:00:00Z", "one", "wide")


class Remembering:
    """A store, with questions that are the same from one time to the next as those of a render are."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._aspects: dict[Any, Any] = {}

    def get(self, *keys: str) -> Any:
        return self._store.get(*keys)

    def derive(self, aspect: Any, *keys: str) -> Any:
        return self._aspects.setdefault((aspect, keys), aspect)(self._store.get(*keys))


@st.composite
def ingresses(draw: st.DrawFn) -> Resource:
    hosts = draw(st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3, unique=True))
    texts = st.sampled_from(["/", "/x", "/x/", "/%78"])
    rules = [rule(host, *(path(one, "web") for one in draw(st.lists(texts, max_size=2)))) for host in hosts]
    listed = draw(st.lists(st.sampled_from(HOSTS), max_size=2))
    annotations = draw(
        st.sampled_from(
            [
                {},
                {"canary": "true"},
                {"ssl-passthrough": "true"},
                {"auth-tls-secret": "authorities"},
                {"server-alias": "b.example"},
            ]
        )
    )
    return ingress(
        f"i{draw(st.integers(0, 30))}",
        *rules,
        namespace=draw(st.sampled_from(NAMESPACES)),
        age=draw(st.integers(1, 20)),
        ingress_class=draw(st.sampled_from(["haptic", "haptic", "haptic", "other"])),
        annotations={PREFIX + name: value for name, value in annotations.items()},
        tls=[{"hosts": [host], "secretName": draw(st.sampled_from(["s", "t"]))} for host in listed],
    )


def answers(lookup: Any) -> tuple[Any, ...]:
    lookups = {"ingressesByHost": lookup}
    found: list[Owners | Exclusions] = [owners_of(host, lookups, OWN, VENDORS) for host in HOSTS]
    return (*found, exclusions_of("*.example", WIDE, lookups, OWN, VENDORS))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(ingresses(), min_size=20, max_size=40), st.lists(st.tuples(st.booleans(), ingresses()), max_size=8))
def test_incremental_answers_equal_a_complete_read_after_each_change(before: list[Resource], changes: Any) -> None:
    store = Store("ingressesByHost", [HOSTS_INDEX])
    for one in before:
        store.upsert(one)
    remembering = Remembering(store)
    for is_there, one in [(True, before[0]), *changes]:
        if is_there:
            store.upsert(one)
        else:
            store.delete(ref_of(one))

        found = answers(remembering)
        assert found == answers(store)
        for host, owners in zip(HOSTS, found, strict=False):
            assert (owners.firsts[:1], contested(owners)) == plainly(store, host)


@st.composite
def below(draw: st.DrawFn) -> Resource:
    host = f"h{draw(st.integers(0, 15))}.example"
    return ingress(
        f"i{draw(st.integers(0, 40))}",
        rule(host, path("/", "web")),
        namespace=draw(st.sampled_from(NAMESPACES)),
        age=draw(st.integers(1, 20)),
        ingress_class="haptic",
        annotations=draw(st.sampled_from([{}, {PREFIX + "auth-tls-secret": "authorities"}])),
        tls=draw(st.sampled_from([[], [{"hosts": [host], "secretName": "s"}]])),
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(below(), min_size=20, max_size=40), st.lists(st.tuples(st.booleans(), below()), max_size=8))
def test_shares_of_a_line_are_those_of_a_complete_read_after_each_change(before: list[Resource], changes: Any) -> None:
    store = Store("ingressesByHost", [HOSTS_INDEX])
    for one in before:
        store.upsert(one)
    remembering = Remembering(store)
    room = Room(hosts=6, size=80, share_hosts=2, share_size=30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(haptic_trio.ingress.owners, "_ROOM", room)
        for is_there, one in [(True, before[0]), *changes]:
            if is_there:
                store.upsert(one)
            else:
                store.delete(ref_of(one))

            found = answers(remembering)[-1]
            assert found == answers(store)[-1]
            assert len(found.hosts) <= 6


def contested(owners: Owners) -> dict[str, tuple[Claimant, Claimant]]:
    return {text: (one.holder, one.rival) for text, one in owners.contests.items()}


def plainly(store: Store, host: str) -> tuple[tuple[Claimant, ...], dict[str, tuple[Claimant, Claimant]]]:
    """Return the owner of *host*, and who wants which path of it, said in the plainest way."""
    claims: list[tuple[str, Claimant, set[str]]] = []
    for one in store.list():
        annotations = one["metadata"].get("annotations", {})
        if one["spec"]["ingressClassName"] != "haptic" or PREFIX + "canary" in annotations:
            continue
        every = {normal_path(each["path"]) for each_rule in one["spec"]["rules"] for each in each_rule["http"]["paths"]}
        paths = set[str]()
        serves = host in [name for entry in one["spec"]["tls"] for name in entry["hosts"]]
        for each_rule in one["spec"]["rules"]:
            if each_rule["host"] == host:
                serves = True
                paths |= {normal_path(each["path"]) for each in each_rule["http"]["paths"]}
        if annotations.get(PREFIX + "server-alias") == host:
            serves = True
            paths |= every
        if serves:
            metadata = one["metadata"]
            claims.append((metadata["creationTimestamp"], Claimant(metadata["namespace"], metadata["name"]), paths))
    claims.sort(key=lambda claim: claim[:2])
    found: dict[str, tuple[Claimant, Claimant]] = {}
    for text in {text for _, _, paths in claims for text in paths}:
        wanting = [who for _, who, paths in claims if text in paths]
        rivals = [who for who in wanting if who.namespace != wanting[0].namespace]
        if rivals:
            found[text] = wanting[0], rivals[0]
    return tuple(who for _, who, _ in claims[:1]), found


def test_spellings_of_a_path_are_one() -> None:
    for text in ("/login", "/login/", "/%6cogin", "/%6Cogin//", "/./login", "/x/../login", "//login"):
        assert normal_path(text) == "/login"
    assert [normal_path(text) for text in ("", "/", "//", "/.")] == [""] * 4
    assert normal_path("/Login") != normal_path("/login")
    assert normal_path("/\N{LATIN SMALL LETTER E WITH ACUTE}") == normal_path("/%C3%A9")
    assert normal_path("/\ud800") not in ("", normal_path("/?"))


def test_an_ingress_is_found_by_each_host_that_it_serves() -> None:
    one = ingress(
        "one",
        rule("A.Example.com", path("/", "web")),
        rule("*.example.org", path("/", "web")),
        annotations={PREFIX + "server-alias": "x.org, Y.org", PREFIX + "from-to-www-redirect": "true"},
        tls=[{"hosts": ["t.example.net."], "secretName": "s"}],
    )
    keys = {key for (key,) in KeySchema([HOSTS_INDEX]).prefixes(one)}

    assert {"a.example.com", "*.example.org", "x.org", "y.org", "t.example.net", "www.a.example.com"} <= keys
    assert {".example.com", ".org", ".example.net"} <= keys
    assert COMPUTED_KEYS[HOSTS_INDEX].find({}) == []
    assert [partner_of(host) for host in ("www.a.b", "A.b")] == ["a.b", "www.a.b"]


def test_an_ingress_is_found_by_each_path_of_its_hosts() -> None:
    one = ingress(
        "one",
        rule("a.test", path("/", "web"), path("/b", "web", kind="Exact"), path("/", "web")),
        rule("b.test", {"backend": {}}),
        {"http": {"paths": [path("/", "web")]}},
    )

    assert {key for (key,) in KeySchema([PATHS_INDEX]).prefixes(one)} == {"a.test|/", "a.test|=/b", "b.test|/"}
    assert COMPUTED_KEYS[PATHS_INDEX].find({}) == []
