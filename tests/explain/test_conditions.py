"""Conditions of routes of Gateways besides host and path."""

import itertools
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.explain.conditions import RequestParts, fits, readable
from haptic_trio.explain.requests import RequestQuestion, match_request
from tests.explain.test_gateways import site_of
from tests.gateway.objects import gateway, route, rule, service
from tests.gateway.serving import endpoints, served
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import serving

JSON = {"accept": ("application/json",)}


@pytest.mark.parametrize(
    ("conditions", "request_", "expected"),
    [
        ("", RequestParts(), True),
        ("m,POST", RequestParts(method="POST"), True),
        ("m,POST", RequestParts(), False),
        ("", RequestParts(method="CONNECT"), False),
        ("m,CONNECT", RequestParts(method="CONNECT"), True),
        ("h,accept,application%2Fjson", RequestParts(headers=JSON), True),
        ("h,accept,text%2Fhtml", RequestParts(headers=JSON), False),
        ("h,x,a%2Cb", RequestParts(headers={"x": ("a", "b")}), True),
        ("m,GET&h,x,1", RequestParts(), False),
        ("q,a,b%20c", RequestParts(query="z&a=b+c&a=other"), True),
        ("q,a,other", RequestParts(query="a=b&a=other"), False),
        ("hr,x,.%2A,10,1", RequestParts(headers={"x": ("1",)}), None),
        ("hr,x,.%2A,10,1", RequestParts(), False),
        ("qr,a,.%2A,10,1", RequestParts(query="a=1"), None),
        ("p,%2Fa.%2A,10,1", RequestParts(), None),
        ("p,%2Fa.%2A,10,1&m,PUT", RequestParts(), False),
        ("unheard-of,1", RequestParts(), False),
    ],
)
def test_conditions_hold_or_not_or_depend_on_an_expression(
    conditions: str, request_: RequestParts, expected: bool | None
) -> None:
    assert fits(conditions, request_) is expected


def test_conditions_are_readable() -> None:
    text = "m,PUT&h,x-a,1%2C2&q,a,b&hr,x,%5Ea,1,2&qr,n,b,1,2&p,%2Fa,1,2"

    assert list(readable(text)) == [
        "method PUT", "header x-a: 1,2", "parameter a=b", "header x matches ^a", "parameter n matches b",
        "path matches /a",
    ]  # fmt: skip


def conditional(to: str, **match: Any) -> dict[str, Any]:
    return {**rule(to=to), "matches": [{"path": {"value": "/"}, **match}]}


@pytest.mark.haproxy
def test_haproxy_agrees_about_methods_headers_and_parameters(tmp_path: Path) -> None:
    port = free_port()
    names = ("plain", "post", "header", "param")
    rules = [
        conditional("post", method="POST"),
        conditional("header", headers=[{"name": "X-Kind", "value": "a"}]),
        conditional("param", queryParams=[{"name": "k", "value": "v w"}]),
        rule(to="plain"),
    ]
    with serving(*names) as servers:
        found = [endpoints(name, ("", servers[name])) for name in names]
        objects = [gateway("gw", {"name": "any", "port": port, "protocol": "HTTP"}), route("r", *rules)]
        site = site_of(*objects, *map(service, names))
        with served(tmp_path, port, *objects, *map(service, names), *found):
            for method, kind, query in itertools.product(("GET", "POST"), ("", "a", "b"), ("", "?k=v+w", "?k=x&k=v+w")):
                headers = {"X-Kind": kind} if kind else {}
                question = RequestQuestion(target=f"a.test/{query}", method=method, headers=tuple(headers.items()))
                matched = match_request(site, question)
                connection = HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request(method, f"/{query}", headers={"Host": "a.test", **headers})
                body = connection.getresponse().read().decode()
                connection.close()

                (visit,) = matched.visits
                effective = next(one for one in visit.routes if one.verdict == "yes")
                assert effective.outcomes == (f"backend gateway::web_{body.partition(chr(10))[0]}_80",)
                assert [one.name for one in matched.backends] == [effective.outcomes[0].removeprefix("backend ")]
