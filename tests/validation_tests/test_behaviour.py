from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from haptic_trio.config.assertions import Answer, Expect, Received, Request
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.validation_tests.behaviour import judge
from haptic_trio.validation_tests.live.client import Reply, write_request
from haptic_trio.validation_tests.live.echo import Arrival
from haptic_trio.validation_tests.live.instance import InstanceError, running
from haptic_trio.validation_tests.live.isolation import Server
from haptic_trio.validation_tests.results import Checked, Verdict
from haptic_trio.validation_tests.runner import NO_HAPROXY
from tests.support.processes.haproxy import live_haproxies, paths_named
from tests.validation_tests.builders import SITES, WEB, load, loaded_with, run

SERVER = Server("web", "one", "10.0.0.1:80", "127.1.0.1")
REPLY = Reply(status=200, headers={"x-a": ["1", "2"]}, body="hello", certificate=frozenset({"a.example.com"}))
ARRIVAL = Arrival(SERVER, "GET", "/x", {"host": ["a.example.com"]})


@pytest.mark.parametrize(
    "expect",
    [
        Expect(),
        Expect(headers={"X-A": "2"}, absent_headers=["X-B"], body="ell", certificate="a.example.com"),
        Expect(backend="web", server="one", endpoint="10.0.0.1:80"),
        Expect(received=Received(method="GET", path="/x", headers={"Host": "a.example.com"}, absent_headers=["X-B"])),
    ],
)
def test_what_is_as_expected_is_not_a_fault(expect: Expect) -> None:
    assert list(judge(expect, REPLY, [ARRIVAL])) == []


@pytest.mark.parametrize(
    ("expect", "fault"),
    [
        (Expect(status=404), "the status: expected 404, found 200"),
        (Expect(headers={"X-A": "3"}), "the header X-A: expected '3', found '1, 2'"),
        (Expect(headers={"X-B": "3"}), "the header X-B: expected '3', found none"),
        (Expect(absent_headers=["X-A"]), "the header X-A: expected none, found '1, 2'"),
        (Expect(body="bye"), "the body: expected text with 'bye', found 'hello'"),
        (Expect(certificate="b.com"), "the certificate: expected one for b.com, found one for a.example.com"),
        (Expect(backend="api"), "the backend: expected api, found web"),
        (Expect(endpoint="10.0.0.2:80"), "the endpoint: expected 10.0.0.2:80, found 10.0.0.1:80"),
        (
            Expect(by_haproxy=True),
            "the response: expected one of HAProxy itself, found one of 10.0.0.1:80 in backend web",
        ),
        (Expect(received=Received(path="/y")), "at the server, the path: expected '/y', found '/x'"),
        (
            Expect(received=Received(absent_headers=["Host"])),
            "at the server, the header Host: expected none, found 'a.example.com'",
        ),
    ],
)
def test_each_difference_is_named(expect: Expect, fault: str) -> None:
    assert list(judge(expect, REPLY, [ARRIVAL])) == [fault]


def test_a_missing_response_is_a_difference() -> None:
    assert list(judge(Expect(status=200, backend="web"), Reply(), [])) == [
        "the status: expected 200, found none: the connection was closed",
        "the backend: expected web, found none: no server was reached",
    ]
    assert list(judge(Expect(received=Received(path="/y")), REPLY, [])) == [
        "the request at the server: expected one, found none: nothing arrived at a server"
    ]


def test_a_request_goes_over_the_wire_as_it_is_written() -> None:
    request = Request(method="PUT", path="/a b", host="x|y", headers={"X-A": " 1"}, body="é")

    assert write_request(request) == (
        b"PUT /a b HTTP/1.1\r\nHost: x|y\r\nX-A:  1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n\xc3\xa9"
    )
    assert write_request(Request()).startswith(b"GET / HTTP/1.0\r\nConnection")


def observed(assertion: dict[str, Any], **test: Any) -> Checked:
    (result,) = run(loaded_with([{"type": "behaviour", **assertion}], **test), with_haproxy=True)
    return result.checked[0]


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_binary")
class TestRealHaproxy:
    @pytest.mark.parametrize(
        "assertion",
        [
            {"request": {"host": "web.example.com"}, "expect": {"endpoint": "10.0.0.1:80", "backend": "web"}},
            {"request": {"host": "web.example.com"}, "expect": {"headers": {"X-Greeting": "hello"}}},
            {"request": {"host": "x", "path": "/self"}, "expect": {"status": 204, "byHaproxy": True}},
            {"request": {"host": "x", "port": 8080}, "expect": {"status": 503, "byHaproxy": True}},
            {
                "request": {"method": "POST", "host": "api.example.com", "body": "a=b", "path": "/f?x"},
                "answer": {"status": 418, "headers": {"X-Tea": "green"}, "body": "short and stout"},
                "expect": {
                    "status": 418,
                    "headers": {"X-Tea": "green"},
                    "body": "stout",
                    "server": "one",
                    "received": {"method": "POST", "path": "/f?x", "headers": {"Content-Length": "3"}},
                },
            },
        ],
    )
    def test_what_a_client_meets_holds(self, assertion: dict[str, Any]) -> None:
        found = observed(assertion)

        assert (found.verdict, found.message) == (Verdict.PASSED, "")

    @pytest.mark.parametrize(
        ("assertion", "why"),
        [
            ({"request": {"host": "web.example.com"}, "expect": {"backend": "api"}}, "expected api, found web"),
            ({"request": {"host": "x"}}, "the status: expected 200, found 503"),
            ({"request": {"host": "x", "tls": True}}, "nothing listens with TLS; ports: 8080"),
            ({"request": {"host": "x", "port": 99}}, "nothing listens on port 99"),
            (
                {"request": {"host": "web.example.com", "times": 2}, "expect": {"endpoints": ["a"]}},
                "expected a, found 10.0.0.1:80",
            ),
            ({"request": {"host": "x", "times": 2}}, "request 1: the status: expected 200, found 503"),
        ],
    )
    def test_what_a_client_does_not_meet_is_explained(self, assertion: dict[str, Any], why: str) -> None:
        found = observed(assertion)

        assert found.verdict is Verdict.FAILED
        assert why in found.message

    def test_a_configuration_that_haproxy_rejects_is_explained(self) -> None:
        base = SITES.replace("bind *:8080", "bind *:8080\n        http-request deny if { path_reg (( }")
        text = "it: {fixtures: {}, assertions: [{type: haproxy_valid}, {type: behaviour, request: {host: x}}]}"

        (result,) = run(load(text, base=base), with_haproxy=True)

        assert "haproxy -c: haproxy.cfg:" in result.checked[0].message
        assert result.checked[1].message.startswith("HAProxy exited: ")
        assert "haptic-trio-" not in result.checked[1].message

    def test_servers_that_speak_tls_or_the_proxy_protocol_are_reached(self) -> None:
        base = SITES.replace(":80\n", ":80 ssl verify required send-proxy-v2 check\n")
        text = (
            f"it: {{fixtures: {{sites: [{msgspec.json.encode(WEB).decode()}]}}, assertions:"
            " [{type: behaviour, request: {host: web.example.com}, expect: {endpoint: '10.0.0.1:80'}}]}"
        )

        (result,) = run(load(text, base=base), with_haproxy=True)

        assert [one.message for one in result.checked] == [""]


@pytest.mark.haproxy
async def test_haproxy_and_its_files_are_gone_afterwards(haproxy_binary: Path, tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with running(haproxy_binary, small_generation(), scratch=tmp_path) as instance:
            reply, arrivals = await instance.ask(Request(host="any", path="/x"), Answer(body="hi"))
            assert (reply.status, reply.body) == (200, "hi")
            assert [(one.server.name, one.path) for one in arrivals] == [("one", "/x")]
            assert len(live_haproxies(tmp_path, within=0)) == 1

    assert live_haproxies(tmp_path) == []
    assert paths_named(tmp_path, "*") == []


@pytest.mark.haproxy
async def test_haproxy_is_gone_after_a_cancellation(haproxy_binary: Path, tmp_path: Path) -> None:
    with trio.move_on_after(30) as scope:
        async with running(haproxy_binary, small_generation(), scratch=tmp_path) as instance:
            await instance.ask(Request(host="any"), Answer())
            scope.cancel()
            await trio.sleep_forever()

    assert live_haproxies(tmp_path) == []
    assert paths_named(tmp_path, "*") == []


@pytest.mark.haproxy
async def test_an_haproxy_that_ends_is_noticed_at_once(haproxy_binary: Path, tmp_path: Path) -> None:
    generation = small_generation(extra="    http-request deny if { path_reg (( }\n")
    with trio.fail_after(8):
        async with running(haproxy_binary, generation, scratch=tmp_path) as instance:
            with pytest.raises(InstanceError, match=r"HAProxy exited: .*(path_reg|regex)"):
                await instance.ask(Request(host="any"), Answer())


@pytest.mark.haproxy
async def test_the_client_has_the_address_of_the_test(haproxy_binary: Path, tmp_path: Path) -> None:
    extra = "    http-request set-header X-Who %[src]:%[dst_port]\n"
    with trio.fail_after(30):
        async with running(haproxy_binary, small_generation(extra=extra), scratch=tmp_path) as instance:
            for source, seen in (("203.0.113.7", "203.0.113.7:8080"), ("2001:db8::1", "2001:db8::1:8080")):
                _, arrivals = await instance.ask(Request(host="any", source=source), Answer())
                assert arrivals[0].headers["x-who"] == [seen]


def small_generation(*, extra: str = "") -> Generation:
    text = (
        "defaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    timeout server 5s\n"
        f"frontend web\n    bind *:8080\n{extra}    use_backend app if {{ path,map_beg(maps/x.map) -m found }}\n"
        "backend app\n    server one 10.0.0.1:80\n"
    )
    return make_generation(parse_config(text), [make_file(FileKind.MAP, "maps/x.map", "/ yes\n")])


def test_without_haproxy_what_needs_it_is_skipped() -> None:
    (result,) = run(loaded_with([{"type": "haproxy_valid"}, {"type": "behaviour", "request": {"host": "x"}}]))

    assert result.skipped
    assert not result.failed
    assert {one.message for one in result.checked} == {NO_HAPROXY}
