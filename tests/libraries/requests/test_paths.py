"""Spellings of paths on the wire: none of them passes a rule for a path, and ordinary ones arrive as they were sent."""

import base64
import posixpath
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from haptic_trio.config.model import Config, Snippet
from haptic_trio.k8s.resource import Resource
from haptic_trio.templating.filters.request_paths import readings as known_readings
from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import gateway, route
from tests.gateway.objects import rule as route_rule
from tests.gateway.serving import served
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import library_config, render_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, meta, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.http2 import connect_http2, get
from tests.support.traffic.proxy import running
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import QuietHandler, answering

pytestmark = pytest.mark.haproxy

HERE = "127.0.0.1"
LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-ingress-annotations", "haproxy-org-annotations")
NGINX, HI, ORG = "nginx.ingress.kubernetes.io/", "haproxy-ingress.github.io/", "haproxy.org/"
ELSEWHERE = "203.0.113.0/24"
RULES = {
    "nginx-allow": {NGINX + "whitelist-source-range": ELSEWHERE},
    "nginx-deny": {NGINX + "denylist-source-range": "127.0.0.0/8"},
    "nginx-password": {NGINX + "auth-type": "basic", NGINX + "auth-secret": "users"},
    "nginx-ask": {NGINX + "auth-url": "http://nobody.default.svc.cluster.local:80/"},
    "hi-allow": {HI + "allowlist-source-range": ELSEWHERE},
    "hi-password": {HI + "auth-secret": "users"},
    "org-allow": {ORG + "allow-list": ELSEWHERE},
    "org-password": {ORG + "auth-type": "basic-auth", ORG + "auth-secret": "hashes"},
}
HASH = b"$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1"

CLOSED = (Path(__file__).parent / "closed_paths.txt").read_text().split()
"""Request targets that an application may take for `/admin`, or below; some that none does are among them."""
OPEN = (Path(__file__).parent / "open_paths.txt").read_text().split()
PIECES = (
    "/",
    "//",
    ".",
    "..",
    "a",
    "A",
    "é",
    "%61",
    "%2e",
    "%2E",
    "%2f",
    "%5c",
    "%C3%A9",
    "%c0%ae",
    "%E9",
    "%20",
    "%25",
)
MORE_PIECES = ("%00", "%zz", "%", ";", ";x=1", "%3b", "?", "%3f", "\\", "+", "@", "%40", "%2", "65", "..;")


class _Echo(QuietHandler):
    who = ""

    def answer(self) -> None:
        body = f"{self.who} {self.requestline.split(' ')[1]}".encode("latin-1")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def echoing(name: str) -> Iterator[int]:
    """Run a server that answers with *name* and the request target as it came, and yield its port."""
    with answering(type("Echo", (_Echo,), {"who": name})) as port:
        yield port


def readings(target: str) -> set[str]:
    """Return the paths that one application or another takes *target* for, in lower case."""
    found = {re.sub("^[A-Za-z]+://[^/?#]*", "", target)}
    found |= {path.partition("?")[0].partition("#")[0] for path in found}
    # A URL without a scheme, as some parsers take it.
    found |= {re.sub("^//[^/]*", "", path) for path in found}
    found |= {re.sub(";[^/]*", "", path) for path in found}
    found |= {unquote(path, errors="replace") for path in found}
    found |= {path.replace("\\", "/") for path in found}
    found |= {re.sub(";[^/]*", "", path) for path in found}
    found |= {path.partition("\0")[0].partition("?")[0].partition("#")[0] for path in found}
    found |= {re.sub(r"[. \t\n]+(?=/|$)", "", path) for path in found if not re.search(r"/\.+(/|$)", path)}
    found |= {posixpath.normpath("/" + path.lstrip("/")) for path in found}
    return {re.sub("//+", "/", "/" + path) for path in found}


def is_closed(target: str) -> bool:
    """Whether an application may take *target* for a path that the rule is for."""
    return any(path == "/admin" or path.startswith("/admin/") for path in readings(target))


def secrets() -> list[Resource]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": meta(name),
            "data": {key: base64.b64encode(value).decode()},
        }
        for name, key, value in (("users", "auth", b"joe:" + HASH), ("hashes", "joe", HASH))
    ]


def servers(*ports: tuple[str, int]) -> list[Resource]:
    return [item for name, port in ports for item in (service(name), endpoint_slice(name, endpoint(HERE), ports=port))]


def at(name: str) -> str:
    return f"{name}.example.com"


@pytest.fixture
def closed_sites(cluster: Cluster) -> Iterator[Cluster]:
    """Serve a host for each rule: its path `/` is open, and its path `/admin` is not."""
    with echoing("open") as open_port, echoing("closed") as closed_port:
        objects = [*secrets(), service("nobody"), *servers(("open", open_port), ("closed", closed_port))]
        for name, annotations in RULES.items():
            objects += [
                ingress(name + "-open", rule(at(name), path("/", "open"))),
                ingress(name, rule(at(name), path("/admin", "closed")), annotations=annotations),
            ]
        rendered = cluster.render(*objects, libraries=LIBRARIES)
        assert rendered.rejections == ()
        # Without a check for warnings: on a busy machine HAProxy takes any hash for a slow one.
        with cluster.running(rendered.text, rendered):
            yield cluster


@pytest.mark.parametrize("name", RULES)
def test_no_spelling_of_a_path_passes_the_rule_for_it(closed_sites: Cluster, name: str) -> None:
    for spelling in CLOSED:
        target = spelling.format(host=at(name))
        answer = exchange(closed_sites.http_port, f"GET {target} HTTP/1.1", f"Host: {at(name)}")
        if answer.status == 200:
            who, _, arrived = answer.body.partition(" ")
            assert (who, is_closed(arrived)) == ("open", False), spelling
            assert not is_closed(target) or spelling in {"?/admin", "*"}, spelling
        else:
            assert answer.status in {400, 401, 403, 503}, spelling


def test_no_spelling_passes_over_http2(cluster: Cluster) -> None:
    with echoing("open") as open_port, echoing("closed") as closed_port:
        rendered = cluster.render(
            ingress("open", rule(at("h2"), path("/", "open"))),
            ingress("closed", rule(at("h2"), path("/admin", "closed")), annotations=RULES["nginx-allow"]),
            ingress("accent", rule(at("h2"), path("/é", "closed")), annotations=RULES["nginx-allow"]),
            *servers(("open", open_port), ("closed", closed_port)),
            libraries=LIBRARIES,
        )
        text = rendered.text.replace(f":{cluster.http_port}\n", f":{cluster.http_port} proto h2\n", 1)
        with cluster.running(text, rendered):
            for spelling in [*CLOSED, "/é", "/é/x", "/%c3%a9", "/%C3%A9/x", "/%c3%A9%2f"]:
                if spelling.startswith("/"):
                    with connect_http2(cluster.http_port) as client:
                        client.send(get(at("h2"), spelling))
                        answer = client.answer()
                    assert answer.status != 200 or not is_closed(answer.body.partition(" ")[2]), spelling
                    assert answer.status in {0, 400, 403} or not (is_closed(spelling) or "é" in spelling), spelling


def test_ordinary_paths_arrive_as_they_were_sent(closed_sites: Cluster) -> None:
    for spelling in OPEN:
        answer = exchange(closed_sites.http_port, f"GET {spelling} HTTP/1.1", f"Host: {at('hi-allow')}")
        assert (answer.status, answer.body) == (200, f"open {spelling}")


def test_another_spelling_arrives_normalised_where_the_rule_lets_it_through(cluster: Cluster) -> None:
    expected = {
        "/x/../admin?q=/../%61": "/admin?q=/../%61",
        "//admin/y": "/admin/y",
        "/%61dmin%2Fx": None,
        "/admin/%7euser/a%2Fb//c;v=1": "/admin/~user/a%2Fb//c;v=1",
        "/./admin/..": None,
        "/admin;v=1": None,
    }
    with echoing("open") as open_port, echoing("closed") as closed_port:
        cluster.serve(
            ingress("open", rule(at("a"), path("/other", "open"))),
            ingress(
                "closed",
                rule(at("a"), path("/admin", "closed")),
                annotations={NGINX + "whitelist-source-range": "127.0.0.0/8"},
            ),
            *servers(("open", open_port), ("closed", closed_port)),
            libraries=LIBRARIES,
        )
        for spelling, arrived in expected.items():
            answer = exchange(cluster.http_port, f"GET {spelling} HTTP/1.1", f"Host: {at('a')}")
            assert (
                (answer.status, answer.body) == (200, f"closed {arrived}") if arrived else answer.status in {400, 404}
            )


def test_a_spelling_does_not_lead_out_of_what_a_rewrite_is_for(cluster: Cluster) -> None:
    rewrites = {
        "nginx": (path("/app(/|$)(.*)", "app", kind="ImplementationSpecific"), {NGINX + "rewrite-target": "/pub/$2"}),
        "hi": (path("/app", "app"), {HI + "rewrite-target": "/pub"}),
        "org": (path("/app", "app"), {ORG + "path-rewrite": "/app/(.*) /pub/\\1"}),
    }
    with echoing("app") as port:
        cluster.serve(
            *servers(("app", port)),
            *(ingress(name, rule(at(name), where), annotations=how) for name, (where, how) in rewrites.items()),
            libraries=LIBRARIES,
        )
        for name in rewrites:
            for spelling in ("/app/x", "//app/x", "/app//x", "/%61pp/x", "/x/../app/x", "/app/y/../x"):
                answer = exchange(cluster.http_port, f"GET {spelling} HTTP/1.1", f"Host: {at(name)}")
                assert (answer.status, answer.body) == (200, "app /pub/x"), (name, spelling)
            for spelling in ("/%2fapp/x", "/app%2fx", "/app%2f..%2fx", "/app/..%2fx", "/;/app/x", "/app;/x"):
                answer = exchange(cluster.http_port, f"GET {spelling} HTTP/1.1", f"Host: {at(name)}")
                assert answer.status in {400, 404}, (name, spelling)


@pytest.mark.parametrize("filling", ["%2f", "%40", "%61", "a/", "/", "%25", "é"])
def test_a_long_path_is_not_read_in_part(closed_sites: Cluster, filling: str) -> None:
    """What is encoded takes more room while it is read than a buffer has."""
    for length in (1_000, 4_000, 8_000, 15_000):
        target = "/x/" + filling * (length // len(filling.encode())) + "/..%2f" * 5 + "..%2fadmin"
        answer = exchange(closed_sites.http_port, f"GET {target} HTTP/1.1", f"Host: {at('hi-allow')}")
        assert answer.status in {400, 414, 431}
    ordinary = "/" + "a/b" * 4_000
    answer = exchange(closed_sites.http_port, f"GET {ordinary} HTTP/1.1", f"Host: {at('hi-allow')}")
    assert (answer.status, answer.body) == (200, f"open {ordinary}")


def test_denied_paths_have_no_other_spelling(cluster: Cluster) -> None:
    with echoing("open") as port:
        cluster.serve(
            ingress("open", rule(at("a"), path("/", "open"))), *servers(("open", port)), deniedPaths=["/admin", "/.git"]
        )
        for spelling in (*CLOSED, "/.git", "/%2egit/config", "/x/..//.git", "/%2f.git", "/.git%2fconfig"):
            target = spelling.format(host=at("a"))
            answer = exchange(cluster.http_port, f"GET {target} HTTP/1.1", f"Host: {at('a')}")
            assert answer.status in {400, 403} or spelling in {"?/admin", "*"}, spelling
        assert exchange(cluster.http_port, "GET /gitlab HTTP/1.1", f"Host: {at('a')}").status == 200


def test_without_normalisation_paths_are_compared_as_they_come(cluster: Cluster) -> None:
    with echoing("open") as port, echoing("closed") as closed:
        cluster.serve(
            ingress("open", rule(at("a"), path("/", "open"), path("/%61;b", "closed"))),
            *servers(("open", port), ("closed", closed)),
            normalizePaths=False,
        )
        for spelling, arrived in {"/%61;b/../c": "closed /%61;b/../c", "//a/%zz": "open //a/%zz"}.items():
            assert exchange(cluster.http_port, f"GET {spelling} HTTP/1.1", f"Host: {at('a')}").body == arrived


def test_a_path_with_two_readings_is_rejected_in_an_ingress(cluster: Cluster) -> None:
    paths = ("/a;b", "/a%3Bb", "/a%5Cb", "/a.", "/a./b", "/a%20", "/a%00", "/a%0A", "/a%E9")
    rendered = cluster.render(
        *(ingress(f"bad{number}", rule(at("a"), path(text, "open"))) for number, text in enumerate(paths)),
        ingress("good", rule(at("a"), path("/%61/b%20c/@/%40/é/%C3%a9", "open"))),
    )

    assert set(rendered.rejected) == {f"Ingress default/bad{number}" for number in range(len(paths))}
    assert "a.example.com|/a/b%20c/@/@/é/é/ " in rendered.files["maps/path-prefix.map"]


def test_routes_are_looked_up_by_the_same_path_in_python_and_in_haproxy(tmp_path: Path) -> None:
    """Paths made of pieces that mean something, and of those that do not."""
    port = free_port()
    shown = '"%[var(txn.literal),hex]7c%[var(txn.path),hex]"'
    snippets = {
        "frontend-rules-user": f"    http-request return status 200 content-type text/plain lf-string {shown}\n"
    }
    user = Config(template_snippets={name: Snippet(template=text) for name, text in snippets.items()})
    config = library_config("base", "ssl", "ingress", user=user, bindAddress="127.0.0.1", httpPort=port)
    rendered = render_config(config, [])
    draw = random.Random(11)
    with running(tmp_path, rendered.text.replace(f":{port}\n", f":{port} proto h2\n", 1), rendered.files, port=port):
        for _ in range(1500):
            path = "/" + "".join(draw.choice(PIECES + MORE_PIECES) for _ in range(draw.randrange(1, 9)))
            with connect_http2(port) as client:
                client.send(get(at("a"), path))
                answer = client.answer()
            # For ordinary paths there is no txn.literal.
            body = answer.body if not answer.body.startswith("7c") else answer.body[2:] + answer.body
            found = bytes.fromhex(body).decode(errors="surrogateescape") if answer.status == 200 else None
            known = known_readings(path.partition("?")[0])
            assert found == (known and "|".join(known)), path


@contextmanager
def gateway_sites(directory: Path) -> Iterator[int]:
    """Serve a Gateway whose routes leave `/` open and have a rule for `/admin`, one of a kind for each host."""
    port = free_port()
    away = [{"type": "RequestRedirect", "requestRedirect": {"hostname": "login.example.com", "statusCode": 302}}]

    def closed(kind: str, value: str) -> dict[str, Any]:
        return {"matches": [{"path": {"type": kind, "value": value}}], "filters": away}

    members = {"headers": [{"name": "x-member", "value": "yes"}], "path": {"type": "PathPrefix", "value": "/admin"}}
    with echoing("open") as open_port, echoing("closed") as closed_port:
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("open", open_port),
            *leading_to("closed", closed_port),
            route("prefix", route_rule("/", to="open"), closed("PathPrefix", "/admin"), hostnames=[at("prefix")]),
            # Of rules that are as specific as each other the first one counts.
            route(
                "regex",
                closed("RegularExpression", "/admin(/.*)?"),
                route_rule("/", to="open"),
                hostnames=[at("regex")],
            ),
            route(
                "members",
                route_rule("/", to="open"),
                {"matches": [members], "backendRefs": [{"name": "closed", "port": 80}]},
                closed("PathPrefix", "/admin"),
                hostnames=[at("members")],
            ),
            route("any", route_rule("/", to="open"), closed("PathPrefix", "/admin")),
        ]
        with served(directory, port, *objects):
            yield port


def test_no_spelling_of_a_path_passes_the_rule_of_a_route(tmp_path: Path) -> None:
    with gateway_sites(tmp_path) as port:
        for name in ("prefix", "regex", "members", "any"):
            for spelling in CLOSED:
                target = spelling.format(host=at(name))
                answer = exchange(port, f"GET {target} HTTP/1.1", f"Host: {at(name)}")
                if answer.status == 200:
                    assert not is_closed(answer.body.partition(" ")[2]), (name, spelling)
                    assert answer.body.startswith("open "), (name, spelling)
                else:
                    assert answer.status in {302, 400}, (name, spelling)
            for spelling in OPEN:
                answer = exchange(port, f"GET {spelling} HTTP/1.1", f"Host: {at(name)}")
                assert (answer.status, answer.body) == (200, f"open {spelling}")


def test_a_spelling_does_not_lead_out_of_what_a_route_rewrites(tmp_path: Path) -> None:
    port = free_port()
    rewrite = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/pub"}}
    filters = [{"type": "URLRewrite", "urlRewrite": rewrite}]
    with echoing("app") as app:
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("app", app),
            route("app", route_rule("/app", to="app", filters=filters)),
        ]
        with served(tmp_path, port, *objects):
            for spelling in ("/app/x", "//app/x", "/app//x", "/%61pp/x", "/x/../app/x", "/app/y/../x"):
                answer = exchange(port, f"GET {spelling} HTTP/1.1", "Host: a.test")
                assert (answer.status, answer.body) == (200, "app /pub/x"), spelling
            for spelling in ("/%2fapp/x", "/app%2fx", "/app%2f..%2fx", "/app/..%2fx", "/;/app/x", "/app;/x"):
                assert exchange(port, f"GET {spelling} HTTP/1.1", "Host: a.test").status in {400, 404}, spelling


def test_another_spelling_takes_no_path_from_an_older_route(tmp_path: Path) -> None:
    port = free_port()
    old, young = (f"2026-0{month}-01T00:00:00Z" for month in (1, 2))
    with echoing("old") as old_port, echoing("young") as young_port:
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("old", old_port),
            *leading_to("young", young_port),
            route("z", route_rule("/admin", "/caf%C3%A9", to="old"), hostnames=[at("a")], created=old),
            route("a", route_rule("/%61dmin", "/caf%c3%a9", "/%7E", to="young"), hostnames=[at("a")], created=young),
        ]
        with served(tmp_path, port, *objects):
            expected = {
                "/admin": "old",
                "/%61dmin/x": "old",
                "/caf%C3%A9": "old",
                "/caf%c3%a9/x": "old",
                "/~/x": "young",
            }
            for spelling, who in expected.items():
                answer = exchange(port, f"GET {spelling} HTTP/1.1", f"Host: {at('a')}")
                assert answer.body.split(" ")[0] == who, spelling
