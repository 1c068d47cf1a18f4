"""The line that ends the start: what it says, and when."""

from collections.abc import Sequence

import msgspec
import pytest
from structlog.testing import capture_logs

from haptic_trio import messages as m
from haptic_trio.cli.serving.announcement import Announcement, addresses_of, count_routes
from haptic_trio.cli.serving.console import NoConsole
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from tests.support.messages import example_of

CONFIG = """
defaults profile-http
    mode http
defaults profile-tcp
    mode tcp
frontend http from profile-http
    bind 127.0.0.1:8080
frontend https from profile-http
    bind 127.0.0.1:8443 ssl crt-list crt-lists/https.list alpn h2,http/1.1
    bind quic4@127.0.0.1:8443 ssl crt-list crt-lists/https.list alpn h3
"""
MAPS = {
    "maps/path-exact.map": "a.localhost|/x web\n",
    "maps/path-prefix.map": "a.localhost|/ web\nb.localhost|/ web\n",
    "maps/tls-host.map": "a.localhost 1\n",
}


def generation() -> Generation:
    files = [make_file(FileKind.MAP, path, text.encode()) for path, text in MAPS.items()]
    return make_generation(parse_config(CONFIG), files)


def deployed(*names: str, failed: Sequence[str] = ()) -> list[msgspec.Struct]:
    """Return the events of a deployment to *names*."""
    results = [SyncResult(endpoint=name, changed=True, reloaded=True) for name in names]
    ended = msgspec.structs.replace(example_of(m.DeploymentCompleted), results=tuple(results), failed=tuple(failed))
    return [*(m.InstanceDeployed(correlation="1-1", result=result) for result in results), ended]


class Console(NoConsole):
    """A console that has been announced."""

    page = "http://127.0.0.1:9090/console"
    token = "abc"


def announced(*events: msgspec.Struct, wanted: int = 1, shows_token: bool = False) -> list[dict[str, object]]:
    """Return what is logged about *events*."""
    validated = msgspec.structs.replace(example_of(m.ConfigValidated), generation=generation())
    announcement = Announcement(lambda: wanted, Console(), shows_token=shows_token)
    with capture_logs() as logs:
        for event in (validated, *events):
            announcement.take(event)
    return [dict(line) for line in logs]


def test_start_ends_with_addresses_routes_instances_and_the_console() -> None:
    [line] = announced(*deployed("local-1"), *deployed("local-1"))

    assert line == {
        "log_level": "info",
        "component": "haptic-trio",
        "event": "serving",
        "addresses": ["http://127.0.0.1:8080", "https://127.0.0.1:8443"],
        "routes": 3,
        "instances": 1,
        "console": "http://127.0.0.1:9090/console",
        "shown": "Serving http://127.0.0.1:8080 and https://127.0.0.1:8443: 3 routes, 1 instance."
        " Console: http://127.0.0.1:9090/console",
    }


def test_without_routes_the_command_that_explains_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAPS, "maps/path-exact.map", "")
    monkeypatch.setitem(MAPS, "maps/path-prefix.map", "")

    [line] = announced(*deployed("local-1"))

    assert line["routes"] == 0
    assert "0 routes, 1 instance. `haptic-trio validate` says which objects are not served, and why. Console:" in str(
        line["shown"]
    )


def test_token_is_in_the_text_for_a_terminal_alone() -> None:
    [line] = announced(*deployed("local-1"), shows_token=True)

    assert str(line.pop("shown")).endswith(" Console: http://127.0.0.1:9090/console#token=abc")
    assert "abc" not in str(line)


def test_start_ends_when_all_instances_have_a_configuration() -> None:
    assert announced(*deployed("local-1"), wanted=2) == []
    assert [line["instances"] for line in announced(*deployed("local-1"), *deployed("local-2"), wanted=2)] == [2]


def test_failed_instance_does_not_hide_that_another_one_serves() -> None:
    assert [line["instances"] for line in announced(*deployed("a", failed=["b"]), wanted=2)] == [1]
    assert announced(*deployed(failed=["b"]), wanted=2) == []


def test_lost_instance_does_not_serve() -> None:
    assert announced(deployed("a")[0], m.EndpointLost(endpoint="a"), *deployed("b"), wanted=2) == []


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("frontend a\n    mode http\n    bind :80,[::1]:81\n", ["http://0.0.0.0:80", "http://[::1]:81"]),
        ("frontend a\n    mode http\n    bind *:80\n    bind abns@x accept-proxy\n", ["http://0.0.0.0:80"]),
        ("frontend a\n    mode tcp\n    bind 127.0.0.1:5432\n", ["tcp://127.0.0.1:5432"]),
        (
            "frontend a\n    mode tcp\n    bind :443\n    tcp-request content reject unless { req.ssl_hello_type 1 }\n",
            ["https://0.0.0.0:443"],
        ),
        ("frontend a\n    mode http\n    bind :84 accept-proxy\n    bind /run/x.sock\n    bind unix@/run/y.sock\n", []),
        ("frontend m\n    mode http\n    bind :8404\n    http-request use-service prometheus-exporter\n", []),
    ],
)
def test_addresses_are_those_of_clients(text: str, addresses: list[str]) -> None:
    assert addresses_of(parse_config(text)) == addresses


def test_each_entry_of_the_maps_of_routes_is_a_route() -> None:
    assert count_routes(generation()) == 3


def test_many_addresses_are_counted_in_the_text_and_listed_in_the_fields() -> None:
    config = "defaults\n    mode http\n" + "".join(f"frontend f{n}\n    bind :{n}\n" for n in range(8000, 8007))
    many = msgspec.structs.replace(example_of(m.ConfigValidated), generation=make_generation(parse_config(config), ()))

    [line] = announced(many, *deployed("local-1"))

    assert "http://0.0.0.0:8003 and 3 more: 0 routes" in str(line["shown"])
    assert len(str(line["addresses"]).split(",")) == 7
