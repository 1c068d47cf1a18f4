"""Canaries are data, and a real HAProxy decides on them as its own ACLs would."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import Answer, ask, serving

NGINX = "nginx.ingress.kubernetes.io"
LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations")
HOST = "canary.example.com"
# Lines of X-Canary, or of cookies: what is `always` or `never` in the sense of HAProxy's ACLs.
LINES = (
    "always", "never", "Always", "", " always ", "always,never", "never, always", "x, always", "x , never , y",
    "alwaysx", "xalways", "not always", "always never", '"always"', '"a, always, b"', '"a, always', '"a\\", always, b"',
    '"a", always', 'a"b, always"c, never', "never\r\nX-Canary: always", "x\r\nX-Canary: never", ",,,always", ",",
)  # fmt: skip
COOKIES = (
    "t.y=always", "t.y=never", "a=b; t.y=always", "a=b;t.y=never;c=d", "txy=always", "t.y=alwaysx", "xt.y=always",
    "t.y = always", " t.y=always ;", "t.y=never; t.y=always", "t.y=x; t.y=never", 't.y="always"', 'a="; t.y=always"',
    'a="b"; t.y=never', "T.Y=always", "t.y=", "t.y", "t.y=x\r\nCookie: t.y=always", "a=b, t.y=always",
)  # fmt: skip


def pair(name: str, **terms: str) -> Iterator[Resource]:
    """Yield an Ingress and its canary for a host called *name*."""
    annotations = {f"{NGINX}/canary": "true"}
    annotations |= {f"{NGINX}/canary-{key.replace('_', '-')}": value for key, value in terms.items()}
    yield ingress(f"{name}-main", rule(f"{name}.example.com", path("/", "web")))
    yield ingress(f"{name}-canary", rule(f"{name}.example.com", path("/", "next")), annotations=annotations)


@contextmanager
def applications() -> Iterator[list[Resource]]:
    """Run the Services `web` and `next` and yield their objects."""
    with serving("web", "next") as ports:
        yield [
            one
            for name, port in ports.items()
            for one in (service(name), endpoint_slice(name, endpoint("127.0.0.1"), ports=port))
        ]


def side(answer: Answer) -> str:
    return answer.body.split("\n")[0]


@pytest.mark.haproxy
def test_header_value_cookie_and_weight_decide_in_this_order(cluster: Cluster) -> None:
    given: dict[str, dict[str, str]] = {
        "header": {"by_header": "X-Canary"},
        "all": {"by_header": "X-Canary", "weight": "100"},
        "value": {"by_header": "X-Canary", "by_header_value": "be,ta 100% 'é'", "by_cookie": "try"},
        "order": {"by_header": "X-Canary", "by_cookie": "try"},
        "most": {"weight": "100", "by_cookie": "try"},
        "none": {"weight": "0"},
        "half": {"weight": "50"},
    }
    expected: list[tuple[str, dict[str, str], str]] = [
        ("header", {"X-Canary": "always"}, "next"),
        ("header", {"x-canary": "always"}, "next"),
        ("header", {"X-Other": "always"}, "web"),
        ("header", {}, "web"),
        ("all", {"X-Canary": "never"}, "web"),
        ("all", {"X-Canary": "maybe"}, "next"),
        ("value", {"X-Canary": "be,ta 100% 'é'"}, "next"),
        ("value", {"X-Canary": "x\r\nX-Canary: be,ta 100% 'é'"}, "next"),
        ("value", {"X-Canary": "be"}, "web"),
        ("value", {"X-Canary": "always"}, "web"),
        ("value", {"X-Canary": "never", "Cookie": "try=always"}, "next"),
        ("order", {"X-Canary": "never", "Cookie": "try=always"}, "web"),
        ("order", {"X-Canary": "always", "Cookie": "try=never"}, "next"),
        ("order", {"Cookie": "try=always"}, "next"),
        ("most", {"Cookie": "try=never"}, "web"),
        ("most", {}, "next"),
        ("none", {"X-Canary": "always", "Cookie": "try=always"}, "web"),
    ]
    with applications() as objects:
        for name, terms in given.items():
            objects.extend(pair(name, **terms))
        assert cluster.serve(*objects, libraries=LIBRARIES).rejected == {}

        for name, headers, wanted in expected:
            answer = ask(cluster.http_port, f"{name}.example.com", headers=headers)
            assert (name, headers, side(answer)) == (name, headers, wanted)
        drawn = {side(ask(cluster.http_port, "half.example.com")) for _ in range(60)}
        assert drawn == {"web", "next"}


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("header", "fetch", "terms", "lines"),
    [
        pytest.param("X-Canary", "req.hdr(X-Canary)", {"by_header": "X-Canary"}, LINES, id="header"),
        pytest.param("Cookie", "req.cook(t.y)", {"by_cookie": "t.y"}, COOKIES, id="cookie"),
    ],
)
def test_always_and_never_are_what_acls_find(
    cluster: Cluster, header: str, fetch: str, terms: dict[str, Any], lines: tuple[str, ...]
) -> None:
    routing = "    use_backend %[var(txn.backend)]\n"
    asked = "".join(f"    http-request set-header X-Found-{word} yes if {{ {fetch} -m str {word} }}\n"
                    for word in ("always", "never"))  # fmt: skip
    with applications() as objects:
        # Without a decision the weight counts: 0 for one canary, 100 for the other.
        objects += [*pair("low", **terms, weight="0"), *pair("high", **terms, weight="100")]
        rendered = cluster.render(*objects, libraries=LIBRARIES)
        assert rendered.text.count(routing) == 1
        text = rendered.text.replace(routing, asked + routing)

        with cluster.running(text, rendered):
            for line in lines:
                low, high = (
                    ask(cluster.http_port, f"{name}.example.com", headers={header: line}) for name in ("low", "high")
                )
                found = [f"x-found-{word}: yes" in low.body.split("\n") for word in ("always", "never")]
                wanted = ("next", "next") if found[0] else ("web", "web") if found[1] else ("web", "next")
                assert (line, side(low), side(high)) == (line, *wanted)


@pytest.mark.haproxy
def test_a_canary_takes_nothing_from_other_hosts(cluster: Cluster) -> None:
    with applications() as objects:
        objects += [
            *pair("own", weight="100"),
            ingress("other", rule("other.example.com", path("/", "web"))),
        ]
        assert cluster.serve(*objects, libraries=LIBRARIES).rejected == {}

        assert side(ask(cluster.http_port, "own.example.com", "/x")) == "next"
        assert side(ask(cluster.http_port, "other.example.com", "/x")) == "web"


@pytest.mark.haproxy
def test_a_pattern_for_a_header_decides_as_in_nginx(cluster: Cluster) -> None:
    given: dict[str, dict[str, str]] = {
        "whole": {"by_header": "X-Canary", "by_header_pattern": "^(beta|test)[0-9]*$", "by_cookie": "try"},
        "part": {"by_header": "X-Canary", "by_header_pattern": "v[0-9]+"},
        "end": {"by_header": "X-Canary", "by_header_pattern": "^a|b$"},
        "value": {"by_header": "X-Canary", "by_header_value": "x", "by_header_pattern": ".*"},
        "every": {"by_header": "X-Canary", "by_header_pattern": ".*"},
    }
    expected = {
        "whole": {"beta": "next", "test7": "next", "xbeta": "web", "Beta": "web", "beta7x": "web", "always": "web"},
        "part": {"v1": "next", "a, v23b": "next", "v": "web", "x" * 500 + "v1": "next", "x" * 600 + "v1": "web"},
        "end": {"ac": "next", "cb": "next", "ba": "web"},
        "value": {"x": "next", "y": "web"},
        "every": {"": "next", "never": "next"},
    }
    with applications() as objects:
        cluster.serve(*objects, *(one for name in given for one in pair(name, **given[name])), libraries=LIBRARIES)
        found = {
            name: {
                text: side(ask(cluster.http_port, f"{name}.example.com", headers={"X-Canary": text})) for text in texts
            }
            for name, texts in expected.items()
        }
        without = side(ask(cluster.http_port, "every.example.com"))
        cookie = {"X-Canary": "x", "Cookie": "try=always"}
        falls_through = side(ask(cluster.http_port, "whole.example.com", headers=cookie))

    assert found == expected
    assert (without, falls_through) == ("web", "next")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(?=a)b", "a\\1", "(", "a" * 5_000])
def test_a_pattern_that_could_take_long_is_rejected(cluster: Cluster, pattern: str) -> None:
    main, canary = pair("a", by_header="X-Canary", by_header_pattern=pattern)
    rendered = cluster.render(main, canary, libraries=LIBRARIES)

    assert list(rendered.rejected) == ["Ingress default/a-canary"]


def test_canaries_of_a_path_that_very_many_ingresses_have_are_rejected(cluster: Cluster) -> None:
    mains = [ingress(f"m{number:02}", rule("a.example.com", path("/", "web"))) for number in range(49)]
    one, two = (
        ingress(name, rule("a.example.com", path("/", "next")), annotations={f"{NGINX}/canary": "true"})
        for name in ("one", "two")
    )

    assert not cluster.render(*mains, one, libraries=LIBRARIES).rejected
    rejected = cluster.render(*mains, one, two, libraries=LIBRARIES).rejected
    assert rejected
    for reason in rejected.values():
        assert reason == "more than 50 Ingresses of the namespace have the host and path a.example.com|/ of this canary"


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "rules",
    [
        {"haproxy-ingress.github.io/auth-secret": "users"},
        {"haproxy-ingress.github.io/denylist-source-range": "127.0.0.0/8"},
        {"haproxy.org/allow-list": "192.0.2.0/24"},
        {"haproxy.org/auth-type": "basic-auth", "haproxy.org/auth-secret": "users"},
    ],
    ids=lambda rules: str(next(iter(rules))),
)
def test_a_canary_passes_no_rule_of_another_annotation_library(cluster: Cluster, rules: dict[str, str]) -> None:
    main, canary = pair("ruled", by_header="X-Canary")
    main["metadata"]["annotations"] = rules
    libraries = (*LIBRARIES, "haproxy-ingress-annotations", "haproxy-org-annotations")
    with applications() as objects:
        rendered = cluster.serve(main, canary, *objects, libraries=libraries)
        asked = ({"X-Canary": one} for one in ("always", "never"))
        answers = [ask(cluster.http_port, "ruled.example.com", headers=headers) for headers in asked]

    assert rendered.rejections == ()
    assert {answer.status for answer in answers} == {401 if any("auth-secret" in name for name in rules) else 403}


@pytest.mark.haproxy
def test_a_canary_gets_no_plain_requests_of_an_ingress_that_redirects_them(cluster: Cluster) -> None:
    annotations = {f"{NGINX}/ssl-redirect": "true"}
    oldest = ingress("oldest", rule("a.example.com", path("/", "web")), age=1, annotations=annotations)
    second = ingress("second", rule("b.example.com", path("/", "web")), age=2, annotations=annotations)
    second["spec"]["tls"] = [{"hosts": ["b.example.com"]}]
    both = [rule(f"{name}.example.com", path("/", "next")) for name in ("a", "b")]
    terms = {f"{NGINX}/canary": "true", f"{NGINX}/canary-by-header": "X-Canary"}
    canary = ingress("canary", *both, age=3, annotations=terms)
    with applications() as objects:
        cluster.serve(oldest, second, canary, *objects, libraries=LIBRARIES, sslRedirect=False)
        first, other = (
            ask(cluster.http_port, f"{name}.example.com", headers={"X-Canary": "always"}) for name in ("a", "b")
        )

    assert side(first) == "next"
    assert other.headers["location"] == "https://b.example.com/"


@pytest.mark.haproxy
def test_a_canary_gets_no_plain_requests_of_an_ingress_with_tls_passthrough(cluster: Cluster) -> None:
    main, canary = pair("passed", weight="100")
    main["metadata"]["annotations"] = {f"{NGINX}/ssl-passthrough": "true"}
    with applications() as objects:
        cluster.serve(main, canary, *objects, libraries=LIBRARIES)
        answer = ask(cluster.http_port, "passed.example.com")

    assert answer.status == 308
    assert answer.headers["location"].startswith("https://passed.example.com")
