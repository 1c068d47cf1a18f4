"""8, 9 and 19 to 23: long lists, regular expressions, numbers, weights, snippets, references, costly passwords."""

import os
from itertools import chain

import pytest
import trio

from haptic_trio.k8s.resource import Resource
from tests.bad_inputs.world import HASH, JCM, NGINX, ORG, Case, World, annotated, evil, evil_route, made, secret
from tests.gateway.objects import grant
from tests.gateway.objects import rule as route_rule
from tests.gateway.objects import service as web_service
from tests.support.kubernetes import endpoint, endpoint_slice, path, service

pytestmark = pytest.mark.haproxy

INGRESS, ROUTE = "Ingress default/evil", "HTTPRoute web/evil"
NETWORKS = ",".join(f"10.{number // 256}.{number % 256}.0/24" for number in range(2_000))


def case(number: int, name: str, *objects: Resource, rejected: str = "", warnings: tuple[str, ...] = ()) -> Case:
    return Case(number=number, name=name, objects=objects, rejected=(rejected,) if rejected else (), warnings=warnings)


def matching(expression: str, name: str = "evil") -> Resource:
    return evil_route(route_rule(matches=[{"path": {"type": "RegularExpression", "value": expression}}]), name=name)


ORIGINS = ",".join(f"https://*.h{number}.test" for number in range(501))
# 8: HAProxy takes at most 64 words in a line.
MANY_WORDS = [
    case(8, "2,000 networks, nginx", annotated(NGINX, whitelist_source_range=NETWORKS)),
    case(8, "2,000 networks, haproxy.org", annotated(ORG, allow_list=NETWORKS)),
    case(8, "2,000 networks, haproxy-ingress", annotated(JCM, allowlist_source_range=NETWORKS)),
    case(8, "300 names of headers", annotated(NGINX, enable_cors="true", cors_allow_headers=",".join(["x-a"] * 300))),
    case(
        8,
        "300 origins",
        annotated(NGINX, enable_cors="true", cors_allow_origin=",".join(f"https://h{n}.test" for n in range(300))),
    ),
    *(
        case(
            8,
            f"501 origins, {prefix}",
            annotated(prefix, **{switch: "true", "cors_allow_origin": ORIGINS}),
            rejected=INGRESS,
        )
        for prefix, switch in ((NGINX, "enable_cors"), (ORG, "cors_enable"), (JCM, "cors_enable"))
    ),
    case(8, "100 rewrites", annotated(ORG, path_rewrite="\n".join(["/a(.*) /b\\1"] * 100))),
    case(8, "101 rewrites", annotated(ORG, path_rewrite="\n".join(["/a(.*) /b\\1"] * 101)), rejected=INGRESS),
    case(8, "300 other names", annotated(JCM, server_alias=",".join(f"h{number}.test" for number in range(300)))),
    case(8, "300 host names", evil_route(hostnames=[f"h{number}.test" for number in range(300)])),
]
# 9: an expression is data to the Lua action; one that could take long is rejected.
EXPRESSIONS = [
    *(
        case(9, f"invalid: {text}", matching(text), rejected=ROUTE)
        for text in ("/(", "/[", "/*+?{", "/a{1,65535}{1,1000}", r"/\p{L}+", "/(?R)", "/(*ACCEPT)", "/(?!a).*")
    ),
    *(
        case(9, f"slow: {text}", matching(text), rejected=ROUTE)
        for text in ("/(a+)+", "/(a|a)*", "/(a*)*b", "/.*.*.*.*x", "/(a{1,9}){1,999}")
    ),
    *(
        case(9, f"served: {text}", matching(text))
        for text in ("/(?<n>a)", "/(?P<a>x)(?P<a>y)", "/[[:alpha:]]+", "/a{1,1000}b{1,1000}", "/a&&b||c--d")
    ),
    *(
        case(9, f"path of an Ingress: {text}", evil(path(text, "good"), annotations={f"{NGINX}/use-regex": "true"}),
             rejected=INGRESS)
        for text in ("/(a+)+$", "/(", "/[a-z]+", "/a|b", "/.*.*x")
    ),
]  # fmt: skip
NUMBERS = {
    "session-cookie-max-age": ("-1", "1e9", "abc", "9999999999999"),
    "proxy-read-timeout": ("9999999d", "abc", "-1", "1e9", "25d", "1.5"),
    "proxy-next-upstream-tries": ("-1", "101", "many"),
    "limit-rps": ("0", "-1", "1e9", "unlimited"),
    "limit-connections": ("0", "x"),
    "proxy-body-size": ("8q", "-1", "99999g"),
}
BESIDE = {"session-cookie-max-age": {"affinity": "cookie"}}
# 19: numbers as people write them, and as they should not.
WRONG_NUMBERS = [
    *(
        case(
            19,
            f"{key}: {value}",
            annotated(NGINX, **{key.replace("-", "_"): value}, **BESIDE.get(key, {})),
            rejected=INGRESS,
        )
        for key, values in NUMBERS.items()
        for value in values
    ),
    *(
        case(19, f"pod-maxconn: {value}", annotated(ORG, pod_maxconn=value), rejected=INGRESS)
        for value in ("unlimited", "0", "-1", "1e9")
    ),
    *(
        case(19, f"initial-weight: {value}", annotated(JCM, initial_weight=value), rejected=INGRESS)
        for value in ("300", "-1", "257", "1.0")
    ),
    *(
        case(
            19,
            f"port {port} of an endpoint",
            evil(path("/", "evil")),
            service("evil"),
            endpoint_slice("evil", endpoint("10.0.0.1"), ports={"": port}),
            rejected="Service default/evil",
        )
        for port in (65_536, -1)
    ),
    case(
        19,
        "port 0 of an endpoint",
        evil(path("/", "evil")),
        service("evil"),
        endpoint_slice("evil", endpoint("10.0.0.1"), ports={"": 0}),
        warnings=("NoEndpoints",),
    ),
    *(
        case(19, f"port {port} of a backend", evil(path("/", "good", port)), warnings=("PortNotFound",))
        for port in (0, 65_536, "80 check")
    ),
]


def weighted(*weights: object, to: str = "app") -> Resource:
    return evil_route(route_rule("/", backendRefs=[{"name": to, "port": 80, "weight": one} for one in weights]))


# 20: the Lua action chooses by weight, so there is no limit to exceed.
WEIGHTS = [
    case(20, "all are zero", weighted(0, 0)),
    case(20, "a sum over all limits", weighted(1_000_000, 1_000_000, 1_000_000)),
    case(20, "one backend twice", weighted(1, 1)),
    case(20, "negative", weighted(-1, 1)),
    case(20, "text", weighted("many", 1)),
    case(20, "of a canary", annotated(NGINX, canary="true", canary_weight="300"), rejected=INGRESS),
    case(20, "of a canary, negative", annotated(NGINX, canary="true", canary_weight="-1"), rejected=INGRESS),
]
SNIPPETS = {
    "section": "}\nbackend injected\n    mode http",
    "bind": "bind *:9999",
    "lua": "use-service lua.injected",
    "load": "lua-load /tmp/injected.lua",
    "environment": "setenv PATH injected",
    "socket": "stats socket /tmp/injected level admin",
    "continued": "http-request deny \\",
}
KEYS = {
    NGINX: ("server-snippet", "configuration-snippet", "auth-snippet", "modsecurity-snippet"),
    ORG: ("backend-config-snippet", "frontend-config-snippet", "global-config-snippet"),
    JCM: ("config-backend", "config-frontend", "config-global", "config-sections"),
}
# 21: permission to write an Ingress is no permission to write haproxy.cfg.
IN_SNIPPETS = [
    case(21, f"{key}: {name}", evil(annotations={f"{prefix}/{key}": text}), rejected=INGRESS)
    for prefix, keys in KEYS.items()
    for key in keys
    for name, text in SNIPPETS.items()
]
ELSEWHERE = (web_service("app", namespace="other"),)
TLS_REF = {"certificateRefs": [{"name": "tls", "namespace": "other"}]}


def to_other(*grants: Resource) -> tuple[Resource, ...]:
    reference = {"name": "app", "namespace": "other", "port": 80}
    return (evil_route(route_rule("/", backendRefs=[reference])), *ELSEWHERE, *grants)


# 22: a grant is given by those who are referred to, to those who refer.
REFERENCES = [
    case(22, "Service without a grant", *to_other()),
    case(22, "Service with a grant in the wrong direction", *to_other(grant("web", origin="other"))),
    case(22, "Service with a grant for another kind", *to_other(grant("other", kind="TCPRoute"))),
    case(22, "Service with a grant for others", *to_other(grant("other", origin="elsewhere"))),
    case(22, "Service with a grant to Secrets", *to_other(grant("other", to="Secret"))),
    case(22, "Service with a grant for another name", *to_other(grant("other", name="another"))),
    case(
        22,
        "Secret of another namespace",
        annotated(NGINX, auth_type="basic", auth_secret="other/users"),
        secret("users", {"auth": f"joe:{HASH}"}, namespace="other"),
        rejected=INGRESS,
    ),
    case(
        22,
        "Secret of another namespace, by a path",
        annotated(JCM, auth_secret="../other/users"),
        rejected=INGRESS,
    ),
    case(
        22,
        "certificate without a grant",
        made(
            "Gateway",
            "evil",
            spec={
                "gatewayClassName": "haptic",
                "listeners": [{"name": "a", "port": 9543, "protocol": "HTTPS", "tls": TLS_REF}],
            },
        ),
    ),
]
CHEAP = "$1$abcdefgh$" + "a" * 22


def users_of(count: int, hashed: str) -> str:
    return "\n".join(f"u{number}:{hashed}" for number in range(count))


COSTLY = {
    "bcrypt": "$2y$14$" + "a" * 53,
    "yescrypt": "$y$j9T$abc$" + "a" * 43,
    "rounds": "$6$rounds=999999999$abcdefgh$" + "a" * 86,
    "DES": "abJnggxhB/yWI",
    "plain": "{PLAIN}secret",
}
# 23: HAProxy checks passwords in the thread that serves, and may hash one for each user while it reads.
PASSWORDS = [
    *(
        case(
            23,
            f"{name}, {kind}",
            annotated(prefix, **{"auth_secret": "bad", **beside}),
            secret("bad", {key: f"joe:{hashed}" if key == "auth" else hashed}),
            rejected=INGRESS,
        )
        for name, hashed in COSTLY.items()
        for kind, prefix, key, beside in (
            ("nginx", NGINX, "auth", {"auth_type": "basic"}),
            ("haproxy.org", ORG, "joe", {"auth_type": "basic-auth"}),
            ("haproxy-ingress", JCM, "auth", {}),
        )
    ),
    *(
        case(
            23,
            f"rounds of all users together, {kind}",
            annotated(prefix, **{"auth_secret": "bad", **beside}),
            secret("bad", data),
            rejected=INGRESS,
        )
        for kind, prefix, data, beside in (
            ("nginx", NGINX, {"auth": users_of(201, HASH)}, {"auth_type": "basic"}),
            ("haproxy.org", ORG, {f"u{number}": HASH for number in range(201)}, {"auth_type": "basic-auth"}),
        )
    ),
    case(
        23,
        "1,001 users",
        annotated(NGINX, auth_type="basic", auth_secret="bad"),
        secret("bad", {"auth": users_of(1_001, CHEAP)}),
        rejected=INGRESS,
    ),
]
CASES = list(chain(MANY_WORDS, EXPRESSIONS, WRONG_NUMBERS, WEIGHTS, IN_SNIPPETS, REFERENCES, PASSWORDS))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_it_is_rejected_or_means_nothing_but_itself(world: World, case: Case) -> None:
    await world.check(case)


async def test_a_thousand_users_are_checked_and_served_in_no_time(world: World) -> None:
    users = secret("many", {"auth": users_of(1_000, CHEAP)})
    with world.beside(annotated(NGINX, auth_type="basic", auth_secret="many"), users):
        began = os.times()
        outcome = await world.cycle()
        ended = os.times()
        # On the processor, which may be busy with something else as well.
        assert ended.user - began.user + ended.children_user - began.children_user < 3
        assert outcome.held == {}
        with world.serving(outcome):
            world.check_good()
            assert world.ask("evil.example.com").status == 401


async def test_a_text_that_is_too_long_for_an_expression_is_rejected_and_matches_no_other_rule(world: World) -> None:
    route = evil_route(
        route_rule(matches=[{"path": {"type": "RegularExpression", "value": "/[a-z]*[a-y]*[!?]"}}]), route_rule("/")
    )
    with world.beside(route):
        outcome = await world.cycle()
        with world.serving(outcome):
            assert world.ask("evil.test", "/" + "a" * 300, port="gateway").status == 200
            assert world.ask("evil.test", "/" + "a" * 8_000, port="gateway").status == 414
            world.check_good()


async def test_who_may_not_refer_to_another_namespace_is_answered_with_500_and_who_may_is_served(world: World) -> None:
    slices = endpoint_slice("app", endpoint("127.0.0.1"), ports=world.server, namespace="other")
    with world.beside(*to_other(), slices):
        outcome = await world.cycle()
        with world.serving(outcome):
            assert world.ask("evil.test", port="gateway").status == 500
            world.check_good()
    with world.beside(*to_other(grant("other")), slices):
        outcome = await world.cycle()
        with world.serving(outcome):
            assert world.ask("evil.test", port="gateway").status == 200


async def test_all_of_them_at_once_leave_everything_else_served(world: World) -> None:
    alone = [case for case in CASES if {one["kind"] for one in case.objects} <= {"Ingress", "HTTPRoute"}]
    cases = [case.under_names_of_its_own(number) for number, case in enumerate(alone)]
    with world.beside(*(one for case in cases for one in case.objects)):
        with trio.fail_after(60):
            outcome = await world.cycle()
        assert set(outcome.held) == {ref for case in cases for ref in case.rejected}
        with world.serving(outcome):
            world.check_good()
