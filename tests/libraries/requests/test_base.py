"""The frame: settings, headers, extension points, and what the two maps mean by themselves."""

import re
from pathlib import Path

import pytest
import trio

from haptic_trio.config.libraries import library_names, load_library
from haptic_trio.config.model import Config, Snippet, Template
from tests.libraries.conftest import Cluster
from tests.libraries.requests.spop import judging
from tests.support.components.rendering import library_config, render, render_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import check, running
from tests.support.traffic.servers import ask, serving

HOST = "a.example.com"


def test_the_shipped_libraries_say_what_they_are() -> None:
    assert {"base", "ssl", "ingress"} <= set(library_names())
    for name in library_names():
        assert load_library(name).description


@pytest.mark.haproxy
@pytest.mark.parametrize("libraries", [("base",), ("base", "ssl"), ("base", "ingress"), ("base", "ssl", "ingress")])
def test_an_empty_cluster_gives_a_configuration_that_haproxy_takes(tmp_path: Path, libraries: tuple[str, ...]) -> None:
    rendered = render([], libraries=libraries)

    assert rendered.rejections == ()
    assert check(tmp_path, rendered.text, rendered.files) == ""


@pytest.mark.haproxy
def test_every_setting_is_taken_by_haproxy(cluster: Cluster) -> None:
    rendered = cluster.serve(
        maxconn=1000,
        hardStopAfter="1m",
        accessLog=True,
        balance="leastconn",
        retries=0,
        timeoutTunnel="10m",
        metricsPort=(port := free_port()),
    )

    assert "maxconn 1000" in rendered.text
    assert ask(port, HOST, "/metrics").body.startswith("# HELP")
    assert ask(port, HOST, "/stats").status == 200
    assert ask(cluster.http_port, HOST, "/metrics").status == 404


@pytest.mark.haproxy
def test_both_address_families_are_bound_on_request(tmp_path: Path) -> None:
    rendered = render([], bindAddress="[::]")

    assert "bind [::]:8080 v4v6\n" in rendered.text
    assert check(tmp_path, rendered.text, rendered.files) == ""


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("mode", "expected"),
    [("replace", {"127.0.0.1", "http", HOST}), ("append", {"1.2.3.4", "127.0.0.1", "https", "outer.example.com"})],
)
def test_forwarded_headers_of_clients_count_only_on_request(cluster: Cluster, mode: str, expected: set[str]) -> None:
    claimed = {
        "X-Forwarded-For": "1.2.3.4",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "outer.example.com",
        "Proxy": "http://evil.example.com",
    }
    with serving("web") as ports:
        cluster.serve(
            ingress("web", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=ports["web"]),
            forwardedHeaders=mode,
        )

        seen = [line.partition(": ") for line in ask(cluster.http_port, HOST, headers=claimed).body.split("\n")[2:]]

    assert {
        value for name, _, value in seen if name in {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"}
    } == (expected)
    assert "proxy" not in {name for name, _, _ in seen}


@pytest.mark.haproxy
def test_users_hang_snippets_on_every_extension_point(tmp_path: Path) -> None:
    port, extra = free_port(), free_port()
    snippets = {
        "global-user": "    tune.maxrewrite 2048\n",
        "defaults-user": "    timeout http-keep-alive 5s\n",
        "sections-user": "userlist people\n    user someone insecure-password secret\n\n",
        "frontends-user": (
            f"frontend extra from profile-http\n    bind 127.0.0.1:{extra}\n    default_backend no-route\n\n"
        ),
        "frontend-rules-user": "    http-request deny deny_status 403 if { var(txn.path) -m beg /secret }\n",
        "frontend-routing-user": (
            "    http-request set-var(txn.backend) str(special) if { req.hdr(x-special) -m found }\n"
        ),
        "backends-user": "backend special from profile-http\n    http-request return status 418\n\n",
        "map-path-exact-user": "b.example.com|/x special\n",
        "map-path-prefix-user": "b.example.com|/y/ special\n",
    }
    user = Config(template_snippets={name: Snippet(template=text) for name, text in snippets.items()})
    config = library_config("base", "ssl", "ingress", user=user, bindAddress="127.0.0.1", httpPort=port)
    rendered = render_config(config, [])

    with running(tmp_path, rendered.text, rendered.files, port=port):
        assert ask(port, HOST, "/secret/x").status == 403
        assert ask(port, HOST, headers={"X-Special": "1"}).status == 418
        assert ask(port, "b.example.com", "/x").status == 418
        assert ask(port, "b.example.com", "/y/z").status == 418
        assert ask(port, "b.example.com", "/z").status == 404


def test_a_snippet_or_map_of_the_user_replaces_that_of_a_library() -> None:
    user = Config(
        template_snippets={"backends-no-route": Snippet(template="backend no-route from profile-http\n")},
        maps={"path-exact.map": Template(template="mine.example.com|/ mine\n")},
    )
    rendered = render_config(library_config("base", "ssl", "ingress", user=user), [])

    assert rendered.text.rstrip().endswith("backend no-route from profile-http")
    assert rendered.files["maps/path-exact.map"] == "mine.example.com|/ mine\n"


@pytest.mark.haproxy
def test_a_request_without_any_route_says_so(cluster: Cluster) -> None:
    cluster.serve()

    answer = ask(cluster.http_port, HOST)

    assert (answer.status, answer.headers["content-type"]) == (404, "text/plain")
    assert "no route" in answer.body


@pytest.mark.haproxy
async def test_scripts_run_where_threads_cannot_load_them_for_themselves(tmp_path: Path, cluster: Cluster) -> None:
    with serving("web") as ports:
        async with judging() as agent:
            rendered = cluster.render(
                ingress("web", rule(HOST, path("/", "web"))),
                service("web"),
                endpoint_slice("web", endpoint("127.0.0.1"), ports=ports["web"]),
                wafAddress="127.0.0.1",
                wafPort=agent.port,
                wafTimeout="10s",
            )
            # As for an HAProxy of none of the versions that can.
            text, count = re.subn(r"^\.if version_atleast\(3\.2\.4\).*$", ".if 0", rendered.text, flags=re.MULTILINE)
            with running(tmp_path, text, rendered.files, port=cluster.http_port):
                answer = await trio.to_thread.run_sync(ask, cluster.http_port, HOST)

    assert (count, answer.status, len(agent.asked)) == (1, 200, 1)
