"""Routes of several namespaces for one port: each request goes where the Gateway API says, and nowhere else.

An independent model of the specification says where. A route that takes requests of another namespace, or keeps them
from it, by a spelling, a condition or its age shows as a difference.
"""

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource
from tests.attacks.routes.inputs import REDIRECTED_TO, ROUTES, RULES, Inputs
from tests.attacks.routes.model import Model, Request, is_ambiguous, normal_path, readings
from tests.attacks.test_objects import IS_DEEP
from tests.gateway.objects import gateway, service
from tests.gateway.serving import endpoints, served
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running
from tests.support.traffic.servers import PATIENCE

SITES = 60 if IS_DEEP else 2
REQUESTS = 1_000 if IS_DEEP else 400
SERVERS = """\
defaults
    mode http
    timeout client 60s
    timeout server 60s
    timeout connect 60s
frontend servers
    http-request return status 200 content-type text/plain lf-string %[so_name]
"""


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """The port of a server for each rule, which answers with the name of the rule; all are one HAProxy."""
    found = {f"{name}-{number}": free_port() for name in ROUTES for number in range(RULES)}
    binds = "".join(f"    bind 127.0.0.1:{port} name {name}\n" for name, port in found.items())
    with running(tmp_path_factory.mktemp("servers"), SERVERS + binds, {}, port=found["r0-0"]):
        yield found


def answer_to(port: int, request: Request) -> str:
    """Return the rule that *request* reaches; its status if HAProxy answers."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        target = request.path if request.query is None else f"{request.path}?{request.query}"
        connection.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in (("Host", request.authority), ("Connection", "close"), *request.headers):
            connection.putheader(name, value)
        if request.method != "GET":
            connection.putheader("Content-Length", "0")
        connection.endheaders()
        answer = connection.getresponse()
        if answer.status == 302:
            return answer.headers["Location"].split("/")[2].partition(REDIRECTED_TO)[0]
        return answer.read().decode() if answer.status == 200 else str(answer.status)


def fault(model: Model, request: Request, answer: str) -> str:
    """Return what is wrong with *answer*; empty if nothing is."""
    path = normal_path(request.path)
    wanted = model.winner(request, path) or "404"
    others = {model.winner(request, other) or "404" for other in readings(path)} - {wanted}
    if answer == "400":
        return "" if others or is_ambiguous(path) else f"{wanted} should answer"
    if others and answer != "404":
        return f"400 should answer: readings of the path lead to {sorted({wanted, *others})}"
    return "" if answer == wanted else f"{wanted} should answer"


def backends(routes: list[Resource], ports: dict[str, int]) -> Iterator[Resource]:
    """Yield the Services that *routes* name, with their endpoints."""
    for route in routes:
        namespace = route["metadata"]["namespace"]
        for name in (to["name"] for rule in route["spec"]["rules"] for to in rule.get("backendRefs", ())):
            found = endpoints(name, ("", ports[name]))
            found["metadata"]["namespace"] = namespace
            yield from (service(name, namespace), found)


@pytest.mark.haproxy
@settings(
    max_examples=SITES,
    deadline=None,
    # A smaller number is no simpler site.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32))
def test_each_request_goes_where_the_specification_says(ports: dict[str, int], seed: int) -> None:
    port = free_port()
    inputs = Inputs(Random(seed), port)
    model = Model(inputs.listeners, inputs.routes)
    objects = [gateway("gw", *inputs.listeners), *inputs.routes, *backends(inputs.routes, ports)]
    with TemporaryDirectory() as directory, served(Path(directory), port, *objects):
        answers = [(request, answer_to(port, request)) for request in (inputs.request() for _ in range(REQUESTS))]

    faults = [
        f"{found}, not {answer}: {request}" for request, answer in answers if (found := fault(model, request, answer))
    ]
    assert [one for one in faults if one[0]] == []
    assert {answer for _, answer in answers} - {"400", "404"} != set()
