"""An edge proxy identifies its clients, logs requests, and limits connections and rates, as seen on the wire."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.dataplane.binary import find_haproxy, probe_version
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.capabilities import Capabilities, capabilities_of
from haptic_trio.haproxy.plan.operations import AddAclEntry, DeleteAclEntry
from haptic_trio.haproxy.plan.plan import make_plan
from tests.libraries.conftest import Cluster
from tests.libraries.tls.test_ssl import secret, secure
from tests.support.components.rendering import Rendered, render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import check, running
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import Answer, ask, serving

pytestmark = pytest.mark.haproxy

HOST = "a.example.com"
HERE = "127.0.0.1"


@contextmanager
def edge(cluster: Cluster, **settings: Any) -> Iterator[Rendered]:
    """Serve one Ingress whose server says what arrives."""
    with serving("web") as ports:
        yield cluster.serve(
            ingress("web", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=ports["web"]),
            **settings,
        )


def seen(answer: Answer) -> dict[str, str]:
    """Return the headers that the server saw."""
    lines = (line.partition(": ") for line in answer.body.split("\n")[2:])
    return {name: value for name, _, value in lines}


def test_the_address_that_a_proxy_sends_applies_to_one_request_only(cluster: Cluster) -> None:
    with edge(cluster, trustedProxies=["127.0.0.0/8"], deniedSources=["198.51.100.7"]):
        connection = http.client.HTTPConnection(HERE, cluster.http_port, timeout=5)
        statuses = []
        for claimed in ("198.51.100.7", None, "198.51.100.8", "198.51.100.7"):
            connection.request("GET", "/", headers={"Host": HOST} | ({"X-Forwarded-For": claimed} if claimed else {}))
            with connection.getresponse() as response:
                statuses.append(response.status)
                response.read()
        connection.close()

    assert statuses == [403, 200, 200, 403]


@pytest.mark.parametrize(
    ("header", "appended", "written"),
    [
        ("X-Forwarded-For", "198.51.100.7", ['"', 'x"y', '\\"', '", "']),
        ("Forwarded", "for=198.51.100.7", ['for="', '"', 'for=x;by="y', 'for="\\"', 'for="a", for="b']),
        ("Forwarded", 'for="[2001:db8::7]:4000";proto=https', ['for="', 'for=192.0.2.1, "']),
    ],
)
def test_no_client_hides_the_address_that_a_proxy_appends(
    cluster: Cluster, header: str, appended: str, written: list[str]
) -> None:
    denied = ["198.51.100.7", "2001:db8::7"]
    with edge(cluster, trustedProxies=["127.0.0.0/8"], deniedSources=denied, clientAddressHeader=header):
        for value in ("for=192.0.2.1" if header == "Forwarded" else "192.0.2.1", *written):
            assert ask(cluster.http_port, HOST, headers={header: f"{value}, {appended}"}).status == 403, value
        assert ask(cluster.http_port, HOST, headers={header: appended.replace("7", "8")}).status == 200


def test_a_network_has_the_ipv6_addresses_that_are_made_of_its_addresses(cluster: Cluster) -> None:
    """HAProxy compares mapped, compatible and 6to4 addresses with IPv4 networks, and no other ones."""
    expected = {
        "203.0.113.7": 200,
        "::ffff:203.0.113.7": 200,
        "::203.0.113.7": 200,
        "2002:cb00:7107::1": 200,
        "2002:cb00:7207::1": 403,
        "64:ff9b::203.0.113.7": 403,
        "2001:db8::203.0.113.7": 403,
    }
    with edge(cluster, trustedProxies=["127.0.0.0/8"], allowedSources=["203.0.113.0/24"]):
        answers = {one: ask(cluster.http_port, HOST, headers={"X-Forwarded-For": one}).status for one in expected}

    assert answers == expected


def test_each_request_has_an_identifier_that_client_and_server_learn(cluster: Cluster) -> None:
    with edge(cluster, requestIdHeader="X-Request-ID"):
        first, second = (ask(cluster.http_port, HOST, headers={"X-Request-ID": "mine"}) for _ in range(2))

    given = [answer.headers["x-request-id"] for answer in (first, second)]
    assert [seen(answer)["x-request-id"] for answer in (first, second)] == given
    assert len({*given, "mine"}) == 3


def test_of_several_headers_the_one_that_a_trusted_proxy_adds_counts(cluster: Cluster) -> None:
    doubled = (
        "X-Request-ID: of-a-client",
        "X-Request-ID: ill formed",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Proto: http",
    )
    settings = {"trustedProxies": ["127.0.0.0/8"], "requestIdHeader": "X-Request-ID", "hstsMaxAge": 60}
    with edge(cluster, **settings):
        plain = exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {HOST}", *doubled)
        secured = exchange(
            cluster.http_port, "GET / HTTP/1.1", f"Host: {HOST}", *doubled[:2], "X-Forwarded-Proto: https"
        )

    assert "strict-transport-security" not in plain.headers
    assert "strict-transport-security" in secured.headers
    assert seen(secured)["x-request-id"] not in {"of-a-client", "ill formed"}


def proxied(port: int, client: str) -> bytes:
    """Send a request as a load balancer that sends the client's address first; empty if the connection is closed."""
    with suppress(ConnectionError), socket.create_connection((HERE, port), 5) as connection:
        head = f"PROXY TCP4 {client} {HERE} 4000 80\r\n" if client else ""
        connection.sendall(f"{head}GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)
    return b""


def test_a_load_balancer_must_say_who_the_client_is(cluster: Cluster) -> None:
    with edge(cluster, proxyProtocolFrom=[HERE], deniedSources=["198.51.100.7"]):
        assert b"x-forwarded-for: 203.0.113.5" in proxied(cluster.http_port, "203.0.113.5")
        assert proxied(cluster.http_port, "198.51.100.7").startswith(b"HTTP/1.1 403")
        assert not proxied(cluster.http_port, "").startswith(b"HTTP/1.1 200")


def test_only_a_load_balancer_can_set_the_address_of_the_client(cluster: Cluster) -> None:
    with edge(cluster, proxyProtocolFrom=["192.0.2.1"]):
        assert proxied(cluster.http_port, "203.0.113.5").startswith(b"HTTP/1.1 400")
        assert seen(ask(cluster.http_port, HOST))["x-forwarded-for"] == HERE


def test_servers_receive_the_address_by_the_proxy_protocol(cluster: Cluster) -> None:
    with socket.create_server((HERE, 0)) as server:
        cluster.serve(
            ingress("web", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=server.getsockname()[1]),
            sendProxyProtocol="v2",
        )
        with socket.create_connection((HERE, cluster.http_port), 5) as client:
            client.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            connection, _ = server.accept()
            with connection:
                received = connection.recv(16)

    assert received.startswith(b"\r\n\r\n\x00\r\nQUIT\n\x21\x11")


def generation(rendered: Rendered) -> Generation:
    kinds = {"maps": FileKind.MAP, "ssl": FileKind.CRT_LIST, "general": FileKind.FILE}
    files = [make_file(kinds[name.partition("/")[0]], name, text) for name, text in rendered.files.items()]
    return make_generation(parse_config(rendered.text, source="haproxy.cfg"), files)


@pytest.mark.parametrize("capabilities", [capabilities_of((2, 8)), capabilities_of((3, 4))], ids=["2.8", "3.4"])
def test_endpoints_that_come_and_go_need_no_reload_with_everything_on(capabilities: Capabilities) -> None:
    settings: dict[str, Any] = {
        "sendProxyProtocol": "v2",
        "trustedProxies": ["10.0.0.0/8"],
        "requestIdHeader": "X-Request-ID",
        "accessLog": True,
        "accessLogFormat": "json",
        "deniedPaths": ["/wp-admin"],
        "connectionsPerClient": 10,
        "rateLimit": 10,
        "peers": {"a": "127.0.0.1:10001"},
        "errorPages": {"503": "<p>later</p>"},
        "compression": True,
        "wafAddress": "127.0.0.1",
        "http2GlitchesThreshold": 100,
    }
    web = (ingress("web", rule(HOST, path("/", "web"))), service("web"))

    def rendered(*addresses: str) -> Generation:
        slices = endpoint_slice("web", *(endpoint(address) for address in addresses), ports=80)
        return generation(render([*web, slices], **settings))

    plan = make_plan(rendered("10.0.0.1"), rendered("10.0.0.1", "10.0.0.2"), capabilities=capabilities)

    assert plan.reasons == ()
    assert "send-proxy-v2" in str(plan.operations)


def test_lists_grow_and_shrink_without_a_reload() -> None:
    before = generation(render([], deniedSources=["192.0.2.1"], deniedPaths=["/a", "/b"], trustedProxies=["10.0.0.1"]))
    after = generation(render([], deniedSources=["192.0.2.1", "192.0.2.7"], deniedPaths=["/a"], trustedProxies=["::1"]))

    plan = make_plan(before, after)

    assert plan.reasons == ()
    assert AddAclEntry("general/denied-sources.list", "192.0.2.7/32") in plan.operations
    assert DeleteAclEntry("general/denied-paths.list", "/b") in plan.operations


def syslog(cluster: Cluster, headers: dict[str, str], target: str) -> dict[str, Any]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as log:
        log.bind((HERE, 0))
        log.settimeout(5)
        settings = {"accessLogTarget": f"{HERE}:{log.getsockname()[1]}", "accessLogFormat": "json"}
        with edge(cluster, accessLog=True, trustedProxies=[HERE], requestIdHeader="X-Request-ID", **settings):
            ask(cluster.http_port, HOST, target, headers=headers)
            while True:
                line = log.recv(65536).decode()
                entry: dict[str, Any] = json.loads(line[line.index("{") :])
                if entry["path"] == target.partition("?")[0]:
                    return entry


def test_a_log_line_is_one_json_object_without_secrets(cluster: Cluster) -> None:
    entry = syslog(
        cluster,
        {
            "User-Agent": 'evil","status":999,"x":"\\',
            "Authorization": "Bearer verysecret",
            "Cookie": "session=verysecret",
            "X-Forwarded-For": "203.0.113.5",
            "X-Request-ID": "r-1",
        },
        "/a%22b?token=verysecret",
    )

    assert entry["user_agent"] == 'evil","status":999,"x":"\\'
    assert (entry["status"], entry["method"], entry["host"], entry["backend"]) == (200, "GET", HOST, "default_web_80")
    assert (entry["client"], entry["request_id"], entry["tls"]) == ("203.0.113.5", "r-1", "-")
    assert entry["ms_total"] >= 0
    assert "verysecret" not in str(entry)


def test_a_client_has_so_many_connections_and_no_more(cluster: Cluster) -> None:
    with edge(cluster, connectionsPerClient=2), ExitStack() as stack:
        served = [False] * 4
        for number in range(4):
            held = stack.enter_context(socket.create_connection((HERE, cluster.http_port), 5))
            with suppress(ConnectionError):
                held.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
                served[number] = held.recv(12) == b"HTTP/1.1 200"

    # The connection that waited for HAProxy's start may still have counted at the beginning.
    assert 1 <= sum(served) <= 2
    assert not served[-1]


@contextmanager
def instance(directory: Path, name: str, peers: dict[str, str], objects: Any) -> Iterator[int]:
    """Run one of several HAProxies that are peers, and yield its port."""
    port, own = free_port(), directory / name
    own.mkdir()
    rendered = render(objects, bindAddress=HERE, httpPort=port, rateLimit=20, rateLimitPeriod="1m", peers=peers)
    named = rendered.text.replace("global\n", f"global\n    localpeer {name}\n", 1)
    with running(own, named, rendered.files, port=port):
        yield port


def test_requests_of_a_client_add_up_over_peers(tmp_path: Path, cluster: Cluster) -> None:
    peers = {"haproxy-0.a": f"{HERE}:{free_port()}", "haproxy-1.a": f"{HERE}:{free_port()}"}
    rejected = dict.fromkeys([*peers, "stranger"], 0)
    with serving("web") as ports:
        objects = (
            ingress("web", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=ports["web"]),
        )
        with ExitStack() as stack:
            instances = {name: stack.enter_context(instance(tmp_path, name, peers, objects)) for name in rejected}
            # Never more than 20 to one of them: what rejects is what it knows of the other, within some time.
            for number in range(20):
                for name in peers:
                    rejected[name] += ask(instances[name], HOST).status == 429
                if all(rejected[name] for name in peers):
                    break
                # real time: HAProxy sends counters to its peers in its own time
                time.sleep(0.02 * 1.8 ** (number - 9) if number > 9 else 0)
            for _ in range(21):
                rejected["stranger"] += ask(instances["stranger"], HOST).status == 429

    assert rejected["haproxy-0.a"]
    assert rejected["haproxy-1.a"]
    assert rejected["stranger"] == 1


def test_http3_is_offered_where_haproxy_has_it_and_rejected_elsewhere(tmp_path: Path) -> None:
    rendered = render([secure("a", HOST, "a"), secret("a", HOST)], http3=True, bindAddress=HERE)

    objection = check(tmp_path, rendered.text, rendered.files)

    has_quic = "QUIC" in probe_version(find_haproxy()).features
    assert ("built without QUIC" in objection) is not has_quic
    assert has_quic or objection
