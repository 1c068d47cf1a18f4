"""1 to 7: line breaks, quotes, log-format, references to the environment, control characters, odd paths, long texts."""

from itertools import chain

import pytest

from tests.bad_inputs.world import HASH, JCM, NGINX, ORG, Case, World, annotated, evil, evil_route, filtered, secret
from tests.gateway.objects import rule as route_rule
from tests.support.kubernetes import path

pytestmark = pytest.mark.haproxy

INGRESS, ROUTE = "Ingress default/evil", "HTTPRoute web/evil"
BREAKS = {"LF": "\n", "CR": "\r", "CRLF": "\r\n", "LS": "\u2028", "NEL": "\x85"}
LINE = "http-request set-header X-Evil injected"
WORD = {"quote": "'", "double quote": '"', "backslash": "\\", "hash": "a #b", "trailing backslash": "a\\"}
FORMAT = {
    "env": "%[env(HOME)]",
    "var": "%[var(txn.host)]",
    "lone": "%",
    "percent": "100%",
    "tag": "%ci",
    "flags": "%{+Q}o",
}
REFERENCES = {"braces": "${HOME}", "name": "$HOME", "call": "$(id)", "quoted": '"${HOME}"', "default": "${X-injected}"}
CONTROL = {"NUL": "\0", "BOM": "\ufeff", "ESC": "\x1b[2J", "DEL": "\x7f", "surrogate": "\ud800"}


def modifier(value: str) -> dict[str, object]:
    return {"set": [{"name": "x-a", "value": value}]}


def of_breaks(name: str, char: str) -> list[Case]:
    value = f"x{char}{LINE}"
    ingresses = {
        "realm": annotated(NGINX, auth_type="basic", auth_secret="users", auth_realm=value),
        "redirect": annotated(NGINX, permanent_redirect="https://a.example.com/" + value),
        "header": annotated(ORG, request_set_header=f"X-A x{char}  {LINE}{char}x"),
        "headers": annotated(JCM, headers=f"X-A: x{char}\0{LINE}"),
        "cookie": annotated(NGINX, affinity="cookie", session_cookie_name=value),
        "origin": annotated(JCM, cors_enable="true", cors_allow_origin="https://a.example.com" + value),
        "snippet name": annotated(NGINX, **{f"server-snippet{char}x": LINE}),
    }
    route = filtered("RequestHeaderModifier", "requestHeaderModifier", modifier(value))
    return [
        Case(number=1, name=f"{name} in {place}", objects=(one,), rejected=(INGRESS,))
        for place, one in ingresses.items()
    ] + [
        # U+2028 ends no line, neither of a map nor of a message.
        Case(number=1, name=f"{name} in a filter", objects=(route,), rejected=() if char == "\u2028" else (ROUTE,))
    ]


def of_words(name: str, value: str) -> list[Case]:
    rejected = {
        "realm": annotated(NGINX, auth_type="basic", auth_secret="users", auth_realm=value),
        "cookie": annotated(NGINX, affinity="cookie", session_cookie_name=value),
        "origin": annotated(NGINX, enable_cors="true", cors_allow_origin=value),
        "rewrite": annotated(NGINX, rewrite_target="/" + value),
        "host": annotated(ORG, set_host=value),
    }
    # What the quotes of haproxy.cfg can hold is served as it is.
    literal = {
        "header": annotated(JCM, headers=f"X-A: {value}"),
        "canary": evil(
            host="good.example.com",
            annotations={
                f"{NGINX}/{key}": text
                for key, text in {"canary": "true", "canary-by-header": "X-B", "canary-by-header-value": value}.items()
            },
        ),
    }
    lenient = {("realm", "quote"), ("realm", "hash")}
    return [
        Case(
            number=2, name=f"{name} in {place}", objects=(one,), rejected=() if (place, name) in lenient else (INGRESS,)
        )
        for place, one in rejected.items()
        if (place, name) != ("cookie", "quote")
    ] + [
        *(Case(number=2, name=f"{name} in {place}", objects=(one,)) for place, one in literal.items()),
        Case(
            number=2,
            name=f"{name} in a filter",
            objects=(filtered("ResponseHeaderModifier", "responseHeaderModifier", modifier(value)),),
        ),
    ]


def of_formats(number: int, name: str, value: str) -> list[Case]:
    rejected = {
        "redirect": annotated(NGINX, temporal_redirect="https://a.example.com/" + value),
        "path": annotated(JCM, app_root="/" + value),
    }
    literal = {
        "header": annotated(JCM, headers=f"X-A: {value}"),
        "filter": filtered("RequestHeaderModifier", "requestHeaderModifier", modifier(value)),
        "rewrite": filtered(
            "URLRewrite", "urlRewrite", {"path": {"type": "ReplaceFullPath", "replaceFullPath": f"/{value}"}}
        ),
    }
    lenient = {("redirect", "lone"), ("redirect", "percent"), ("redirect", "tag")}
    # In the controller of its author this would be an expression: it is rejected instead of sent literally.
    if "%[" in value:
        rejected["header"] = literal.pop("header")
    return [
        Case(
            number=number,
            name=f"{name} in {place}",
            objects=(one,),
            rejected=() if (place, name) in lenient else (INGRESS,),
        )
        for place, one in rejected.items()
    ] + [Case(number=number, name=f"{name} in {place}", objects=(one,)) for place, one in literal.items()]


def of_controls(name: str, char: str) -> list[Case]:
    found = [
        Case(number=5, name=f"{name} in a path", objects=(evil(path(f"/a{char}b", "good")),), rejected=(INGRESS,)),
        Case(number=5, name=f"{name} in a host", objects=(evil(host=f"a{char}b.example.com"),), rejected=(INGRESS,)),
    ]
    if char not in ("\ufeff", "\ud800"):
        found.append(
            Case(
                number=5,
                name=f"{name} in a filter",
                objects=(filtered("RequestHeaderModifier", "requestHeaderModifier", modifier(f"a{char}b")),),
                rejected=(ROUTE,),
            )
        )
    return found


PASSWORDS = {
    "invalid UTF-8": f"joe:{HASH}".encode() + b"\n\xff\xfe:x",
    "NUL": f"jo\0e:{HASH}".encode(),
    "BOM": b"\xef\xbb\xbf" + f"joe:{HASH}".encode(),
    "line": f"joe:{HASH}\n    {LINE}".encode(),
    "quote": f"joe':{HASH}".encode(),
    "blank": b"joe:a b c",
}
SECRETS = [
    Case(
        number=5,
        name=f"{name} in a Secret",
        objects=(
            annotated(NGINX, auth_type="basic", auth_secret="bad"),
            secret("bad", {"auth": data}),
        ),
        rejected=(INGRESS,),
        hidden=HASH[:-1] + "X",
    )
    for name, data in PASSWORDS.items()
]

PATHS = {
    "space": "/a b",
    "tab": "/a\tb",
    "hash": "/a#b",
    "encoded slash": "/a%2fb",
    "empty element": "/a//b",
    "parent": "/a/../b",
    "parent at the end": "/a/..",
    "separator of keys": "/a|b",
    "query": "/a?b",
}
ODD_PATHS = [
    Case(number=6, name=f"{name}, {kind}", objects=(evil(path(where, "good", kind=kind)),), rejected=(INGRESS,))
    for name, where in PATHS.items()
    for kind in ("Prefix", "Exact")
] + [
    Case(
        number=6,
        name=f"{name} in a route",
        objects=(evil_route(route_rule(matches=[{"path": {"type": "Exact", "value": where}}])),),
        # These two are characters of a path to the Gateway API, and mean nothing in its maps.
        rejected=() if name in ("encoded slash", "separator of keys") else (ROUTE,),
        warnings=("FieldWithoutEffect",) if name == "encoded slash" else (),
    )
    for name, where in PATHS.items()
]
LONG = "b" * 4096
SIZES = [
    Case(number=7, name="path of 100 kB", objects=(evil(path("/" + "a" * 100_000, "good")),)),
    Case(number=7, name="host of 300", objects=(evil(host=".".join(["a" * 50] * 6)),), rejected=(INGRESS,)),
    Case(number=7, name="host of 253", objects=(evil(host=".".join(["a" * 50] * 4 + ["b" * 49])),)),
    Case(number=7, name="label of 64", objects=(evil(host="a" * 64 + ".test"),), rejected=(INGRESS,)),
    Case(number=7, name="header of 4096", objects=(annotated(JCM, headers=f"X-A: {LONG}"),)),
    Case(
        number=7,
        name="header of 4096 in a filter",
        objects=(filtered("RequestHeaderModifier", "requestHeaderModifier", modifier(LONG)),),
    ),
    Case(
        number=7,
        name="headers of 64 kB in a filter",
        objects=(
            filtered(
                "RequestHeaderModifier",
                "requestHeaderModifier",
                {"set": [{"name": f"x-{number}", "value": LONG} for number in range(16)]},
            ),
        ),
        rejected=(ROUTE,),
    ),
    Case(
        number=7,
        name="regular expression of 100 kB",
        objects=(evil_route(route_rule(matches=[{"path": {"type": "RegularExpression", "value": "a" * 100_000}}])),),
        rejected=(ROUTE,),
    ),
]
CASES = [
    *chain.from_iterable(of_breaks(*one) for one in BREAKS.items()),
    *chain.from_iterable(of_words(*one) for one in WORD.items()),
    *chain.from_iterable(of_formats(3, *one) for one in FORMAT.items()),
    *chain.from_iterable(of_formats(4, *one) for one in REFERENCES.items()),
    *chain.from_iterable(of_controls(*one) for one in CONTROL.items()),
    *(*SECRETS, *ODD_PATHS, *SIZES),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_it_is_rejected_or_means_nothing_but_itself(world: World, case: Case) -> None:
    await world.check(case)


async def test_what_is_served_arrives_as_it_was_written(world: World) -> None:
    values = {
        f"v{number}": value for number, value in enumerate([*WORD.values(), *FORMAT.values(), *REFERENCES.values()])
    }
    by_annotation = [
        annotated(JCM, name=name, headers=f"X-A: {value}") for name, value in values.items() if "%[" not in value
    ]
    by_filter = [
        evil_route(
            route_rule("/", filters=[{"type": "RequestHeaderModifier", "requestHeaderModifier": modifier(value)}]),
            name=name,
        )
        for name, value in values.items()
    ]
    with world.beside(*by_annotation, *by_filter):
        outcome = await world.cycle()
        with world.serving(outcome):
            world.check_good()
            for name, value in values.items():
                hosts = [(f"{name}.test", "gateway"), *([] if "%[" in value else [(f"{name}.example.com", "http")])]
                for host, port in hosts:
                    answer = world.ask(host, port=port)
                    assert answer.status == 200, (host, value)
                    assert f"x-a: {value}\n" in answer.body + "\n", (host, value)
