"""10, 11, 14, 16 to 18: who has what twice, odd hosts, backends that are not there, endpoints, names that collide."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource
from haptic_trio.templating.filters.content import MAX_IDENT, ident
from tests.bad_inputs.world import NGINX, Case, World, evil, evil_route
from tests.gateway.objects import rule as route_rule
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

pytestmark = pytest.mark.haproxy

INGRESS, ROUTE, SERVICE = "Ingress default/evil", "HTTPRoute web/evil", "Service default/evil"


def case(number: int, name: str, *objects: Resource, rejected: str = "", warnings: tuple[str, ...] = ()) -> Case:
    return Case(number=number, name=name, objects=objects, rejected=(rejected,) if rejected else (), warnings=warnings)


def alike(name: str, *rules: dict[str, object], age: int = 2, **more: object) -> Resource:
    return ingress(name, *rules, age=age, **more)  # type: ignore[arg-type]


OTHER = (service("other"), endpoint_slice("other", endpoint("10.0.0.1"), ports=80))
GOOD_HOST = rule("good.example.com", path("/", "other"))
OWN = {f"{NGINX}/proxy-read-timeout": "5"}
# 10 and 11: the oldest wins. Gateways have ports of their own, so a host may be in an Ingress and in a route.
TWICE = [
    case(10, "host and path of another Ingress", alike("evil", GOOD_HOST), *OTHER, warnings=("HostPathConflict",)),
    case(10, "the same in upper case", alike("evil", {**GOOD_HOST, "host": "GOOD.example.com"}), *OTHER,
         warnings=("HostPathConflict",)),
    case(10, "the same with backends of its own", alike("evil", GOOD_HOST, annotations=OWN), *OTHER,
         warnings=("HostPathConflict",)),
    case(10, "to the same Service, which nobody loses", alike("evil", rule("good.example.com", path("/", "good")))),
    case(10, "host of another route", evil_route(hostnames=["good.test"], created="2026-02-01T00:00:00Z")),
    case(11, "host of a route in an Ingress", evil(host="good.test")),
    case(11, "host of an Ingress in a route", evil_route(hostnames=["good.example.com"])),
]  # fmt: skip
HOSTS = {
    "inner wildcard": ("a.*.example.com", True),
    "two wildcards": ("*.*.example.com", True),
    "only a wildcard": ("*", True),
    "wildcard and letters": ("*a.example.com", True),
    "port": ("a.example.com:80", True),
    "trailing dot": ("a.example.com.", True),
    "leading dot": (".example.com", True),
    "U-label": ("bücher.example.com", True),
    "emoji": ("\N{UNICORN FACE}.example.com", True),
    "IPv6": ("[::1]", True),
    "underscore": ("a_b.example.com", True),
    "leading hyphen": ("-a.example.com", True),
    "line": ("a.example.com\nbind :99", True),
    "key": ("a.example.com|/x", True),
    "wildcard": ("*.example.com", False),
    "upper case": ("A.Example.COM", False),
    "punycode": ("xn--bcher-kva.example.com", False),
    "address": ("10.0.0.1", False),
}
ODD_HOSTS = list(
    chain.from_iterable(
        (
            case(14, name, evil(host=host), rejected=INGRESS if is_rejected else ""),
            case(14, f"{name} of TLS", evil(tls=[{"hosts": [host]}])),
            # The API server rejects such routes; one that exists nevertheless matches no request.
            case(14, f"{name} of a route", evil_route(hostnames=[host])),
        )
        for name, (host, is_rejected) in HOSTS.items()
    )
)


def outside(name: str) -> tuple[Resource, ...]:
    return evil(path("/", "evil")), service("evil", type="ExternalName", externalName=name)


# 16: what is not there, and what is somewhere else.
MISSING = [
    case(16, "no Service", evil(path("/", "gone")), warnings=("ServiceNotFound",)),
    case(16, "no endpoints", evil(path("/", "evil")), service("evil"), warnings=("NoEndpoints",)),
    case(16, "no port of this name", evil(path("/", "good", "gone")), warnings=("PortNotFound",)),
    case(16, "no port of this number", evil(path("/", "good", 81)), warnings=("PortNotFound",)),
    case(16, "no certificate", evil(tls=[{"secretName": "gone"}]), warnings=("CertificateNotFound",)),
    case(16, "no Service of a route", evil_route(route_rule("/", to="gone"))),
    case(16, "no port of a route", evil_route(route_rule("/", backendRefs=[{"name": "app", "port": 81}]))),
    case(
        16,
        "resource",
        evil({"path": "/", "pathType": "Prefix", "backend": {"resource": {"kind": "Bucket", "name": "b"}}}),
        rejected=INGRESS,
    ),
    *(
        case(16, f"ExternalName {name}", *outside(name), rejected=SERVICE, warnings=("ServiceNotSupported",))
        for name in ("localhost", "127.0.0.1", "169.254.169.254", "metadata.google.internal", "no.such.host", "a b")
    ),
]


def behind(*slices: Resource) -> tuple[Resource, ...]:
    return evil(path("/", "evil")), service("evil"), *slices


def slice_of(*addresses: str, suffix: str = "1", family: str = "IPv4", **conditions: bool) -> Resource:
    return endpoint_slice(
        "evil", *(endpoint(one, **conditions) for one in addresses), ports=80, suffix=suffix, family=family
    )


# 17: unusual EndpointSlices.
ENDPOINTS = [
    case(17, "both families", *behind(slice_of("10.0.0.1"), slice_of("fd00::1", suffix="2", family="IPv6"))),
    case(17, "IPv6 only", *behind(slice_of("fd00::1", family="IPv6"))),
    case(17, "the same twice", *behind(slice_of("10.0.0.1", "10.0.0.1"), slice_of("10.0.0.1", suffix="2"))),
    case(17, "not ready and terminating", *behind(slice_of("10.0.0.1", ready=False, serving=True, terminating=True))),
    case(17, "not ready", *behind(slice_of("10.0.0.1", ready=False)), warnings=("NoEndpoints",)),
    case(17, "names", *behind(slice_of("a.example.com", family="FQDN")), warnings=("NoEndpoints",)),
    *(
        case(17, f"address {address!r}", *behind(slice_of("10.0.0.1", address)), rejected=SERVICE)
        for address in ("10.0.0.1 check", "10.0.0.1\n    server x 10.0.0.2:80", "unix@/run/x", "$HOME", "fe80::1%eth0",
                        "10.0.0.1|80", "010.0.0.1", "localhost", "\u0661\u0660.0.0.1")
    ),
    case(17, "2 slices of 1,000", *behind(*(
        slice_of(*(f"10.{number}.{one // 250}.{one % 250 + 1}" for one in range(1_000)), suffix=str(number))
        for number in range(2)
    ))),
]  # fmt: skip
CASES = [*TWICE, *ODD_HOSTS, *MISSING, *ENDPOINTS]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_it_is_rejected_or_means_nothing_but_itself(world: World, case: Case) -> None:
    await world.check(case)


PAIRS = [
    (("a-b", "c"), ("a", "b-c")),
    (("a", "svc.1"), ("a", "svc-1")),
    (("a" * 63, "b" * 63), ("a" * 63, "b" * 62)),
    (("a.b", "c"), ("a", "b.c")),
    (("a", "b-80"), ("a-b", "80")),
]


async def test_18_names_that_are_alike_stay_apart(world: World) -> None:
    pairs = [pair for two in PAIRS for pair in two]
    objects = [
        one
        for number, (namespace, name) in enumerate(pairs)
        for one in (
            ingress(f"i{number}", rule(f"h{number}.test", path("/", name)), namespace=namespace),
            service(name, namespace=namespace),
            # Where a request goes says which name it was.
            endpoint_slice(name, endpoint(f"127.0.1.{number + 1}"), ports=1, namespace=namespace),
        )
    ]
    with world.beside(*objects):
        outcome = await world.cycle()

    assert outcome.held == {}
    routed = dict(line.split(" ", 1) for line in outcome.files["maps/path-prefix.map"].splitlines() if "|" in line)
    names = [routed[f"h{number}.test|/"] for number in range(len(pairs))]
    assert len(set(names)) == len(pairs)
    for number, name in enumerate(names):
        section = outcome.text.split(f"backend {name} from ")[1].split("\nbackend ")[0]
        assert f"127.0.1.{number + 1}:1\n" in section


NAMES = st.text(st.sampled_from("ab.-_:/ \n1A\u00e4"), min_size=0, max_size=8) | st.sampled_from(
    ["a" * 250, "a" * 251, "-", ".", "..", "a:2d", "a_b"]
)
PARTS = st.lists(NAMES, min_size=1, max_size=3).filter(any)


@settings(max_examples=150, deadline=None)
@given(PARTS, PARTS)
def test_18_different_names_never_become_one(one: list[str], other: list[str]) -> None:
    first, second = ident(*one), ident(*other)

    assert (first == second) == (one == other)
    assert 0 < len(first) <= MAX_IDENT
    assert not set(first) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-")


async def test_what_wins_is_served_and_what_loses_is_not(world: World) -> None:
    with world.beside(*(one for case in TWICE[:3] for one in case.objects)):
        outcome = await world.cycle()
        with world.serving(outcome):
            world.check_good()


async def test_what_is_missing_is_answered_with_503_and_everything_else_is_served(world: World) -> None:
    objects = [
        evil(path("/service", "gone"), path("/port", "good", 81), path("/endpoints", "idle"), path("/name", "outside")),
        *(service("idle"), service("outside", type="ExternalName", externalName="localhost")),
    ]
    with world.beside(*objects):
        outcome = await world.cycle()
        with world.serving(outcome):
            for where in ("/service", "/port", "/endpoints", "/name"):
                assert world.ask("evil.example.com", where).status == 503, where
            world.check_good()


@pytest.mark.soak
async def test_17_twenty_slices_of_a_thousand_endpoints_are_served(world: World) -> None:
    slices = [
        slice_of(*(f"10.{number}.{one // 250}.{one % 250 + 1}" for one in range(1_000)), suffix=str(number))
        for number in range(20)
    ]
    with world.beside(*behind(*slices)):
        outcome = await world.cycle()
        assert outcome.held == {}
        assert outcome.text.count("    server ") >= 20_000
