"""A Gateway lowers the limits of its listeners by annotations, on a real HAProxy, and cannot raise them."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from haptic_trio.pipeline.render import Rendered
from tests.gateway.objects import gateway, made, route, rule
from tests.gateway.serving import endpoints, render, served
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import PATIENCE, ask, serving

REQUEST = b"GET / HTTP/1.1\r\nHost: web.test\r\n"
MOMENT = 0.3
"""Seconds in which an answer would come if one came."""


def limited(*listeners: tuple[str, int], **annotations: str) -> Rendered:
    """Render a Gateway with *listeners* (protocol and port) and *annotations*, with `_` for `-`."""
    return render(gateway_of(*listeners, **annotations), timeoutClient="40s", gatewayMaxConnections=500)


def gateway_of(*listeners: tuple[str, int], **annotations: str) -> dict[str, object]:
    found = gateway("gw", *({"name": f"l{port}", "port": port, "protocol": kind} for kind, port in listeners))
    found["metadata"]["annotations"] = {
        f"haptic-trio/{name.replace('_', '-')}": value for name, value in annotations.items()
    }
    return found


def frontend(rendered: Rendered, port: int) -> str:
    """Return the section of the frontend for *port*."""
    return rendered.text.partition(f"frontend gateway-port::web_gw_{port} ")[2].partition("\nfrontend ")[0]


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """Connect to *port* until the block ends."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        yield connection


def answer(connection: socket.socket, data: bytes) -> bytes:
    """Return what comes first for *data*; empty if the connection is closed without an answer."""
    try:
        connection.sendall(data)
        return connection.recv(12)
    except ConnectionError:
        return b""


@pytest.mark.haproxy
def test_limits_of_a_gateway_apply_to_the_traffic_of_each_port(tmp_path: Path) -> None:
    slow, few, alone, rated, small, tcp = (free_port() for _ in range(6))
    with serving("web") as web:
        edge = gateway_of(
            *(("HTTP", port) for port in (slow, few, alone, rated, small)),
            ("TCP", tcp),
            timeout_http_request=f"{slow}=200ms",
            timeout_client=f"{tcp}=200ms",
            max_connections=f"{few}=2",
            connections_per_client=f"{alone}=1",
            rate_limit=f"{rated}=2",
            max_body_size=f"{small}=10",
        )
        objects = [
            edge,
            made("Service", "app", version="v1", spec={"ports": [{"port": 80}]}),
            endpoints("app", ("", web["web"])),
            route("web", rule("/")),
            route("tcp", {"backendRefs": [{"name": "app", "port": 80}]}, kind="TCPRoute"),
        ]
        # The periods are long enough for any machine.
        with served(tmp_path, slow, *objects, rateLimitPeriod="1h", timeoutHttpRequest="1h", timeoutTunnel="1h"):
            with connected(slow) as connection:
                assert answer(connection, REQUEST) == b"HTTP/1.1 408"
            with connected(tcp) as connection:
                assert connection.recv(1) == b""

            with connected(few) as one, connected(few) as other:
                assert answer(one, REQUEST + b"\r\n") == b"HTTP/1.1 200"
                assert answer(other, REQUEST + b"\r\n") == b"HTTP/1.1 200"
                with connected(few) as waiting:
                    waiting.settimeout(MOMENT)
                    with pytest.raises(TimeoutError):
                        answer(waiting, REQUEST + b"\r\n")
                    one.close()
                    waiting.settimeout(PATIENCE)
                    assert waiting.recv(12) == b"HTTP/1.1 200"

            with connected(alone) as one:
                assert answer(one, REQUEST + b"\r\n") == b"HTTP/1.1 200"
                with connected(alone) as second:
                    assert answer(second, REQUEST + b"\r\n") == b""

            assert [ask(rated, "web.test").status for _ in range(3)] == [200, 200, 429]

            with connected(small) as connection:
                assert answer(connection, REQUEST + b"Content-Length: 11\r\n\r\n") == b"HTTP/1.1 413"
            # The other ports have the limits of the administrator, which are high, or none.
            assert [ask(slow, "web.test").status for _ in range(4)] == [200] * 4


def test_limit_of_the_administrator_applies_where_a_gateway_asks_for_more() -> None:
    rendered = limited(("HTTP", 8080), ("TCP", 9000), timeout_client="8080=2m", max_connections="8080=9000")

    assert "timeout client" not in frontend(rendered, 8080)
    assert "    maxconn 500\n" in frontend(rendered, 8080)
    assert "    maxconn 500\n" in frontend(rendered, 9000)
    assert [warning.reason for warning in rendered.warnings] == ["LimitIgnored"] * 2
    assert {str(warning.subject) for warning in rendered.warnings} == {"Gateway web/gw"}


def test_without_annotations_frontends_have_no_limits_of_their_own() -> None:
    section = frontend(render(gateway_of(("HTTP", 8080))), 8080)

    assert "maxconn" not in section
    assert "timeout" not in section
    assert "sc7" not in section


def test_value_that_cannot_be_read_rejects_the_gateway_and_names_the_annotation() -> None:
    rendered = limited(("HTTP", 8080), max_connections="many")

    (rejection,) = rendered.rejections
    assert str(rejection.subject) == "Gateway web/gw"
    assert "haptic-trio/max-connections: integer: the value is not a whole number" in str(rejection.problem)


def test_tables_of_clients_count_for_the_limit_of_the_namespace() -> None:
    ports = [("HTTP", port) for port in range(8001, 8012)]
    within = limited(*ports, rate_limit="5")
    beyond = limited(*ports, rate_limit="5", connections_per_client="5")

    assert within.rejections == ()
    assert "stick tables of more than 2,000,000 entries" in str(beyond.rejections[0].problem)
