"""Requests that another server decides on, on a real HAProxy with a real server: what goes on, and what never does."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import ClassVar

import pytest
import trustme

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.operations import SetMapEntry
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.haproxy.plan.split import split_plan
from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import Rendered, render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import PATIENCE, Answer, QuietHandler, answering, ask, serving

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-ingress-annotations")
NGINX, HI = "nginx.ingress.kubernetes.io/", "haproxy-ingress.github.io/"
URL = "http://auth.default.svc.cluster.local:4180/check?u=$escaped_request_uri"


class _Decider(QuietHandler):
    """Answers what the client asks for by X-Verdict, and keeps what it was asked."""

    asked: ClassVar[list[tuple[str, str, dict[str, str]]]] = []

    def answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked.append((self.command, self.path, headers))
        self.send_response(int(headers.get("x-verdict", "401")))
        for name, value in (
            ("X-User", "joe"),
            ("X-Group-One", "staff"),
            ("X-Other", "other"),
            ("Set-Cookie", "session=1"),
            ("Set-Cookie", "more=2"),
            ("WWW-Authenticate", "Bearer"),
            ("Content-Length", "0"),
        ):
            self.send_header(name, value)
        self.end_headers()


@contextmanager
def deciding(certificate: trustme.LeafCert | None = None) -> Iterator[int]:
    """Run the server that decides, over TLS with a *certificate*; yields its port."""
    context: ssl.SSLContext | None = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
    _Decider.asked.clear()
    with answering(_Decider, tls=context) as port:
        yield port


def checked(name: str, annotations: dict[str, str], prefix: str = NGINX) -> Resource:
    given = {prefix + key: value for key, value in annotations.items()}
    return ingress(name, rule(f"{name}.example.com", path("/", "web")), annotations=given)


def servers(web: int, *decider: int, name: str = "auth") -> list[Resource]:
    slices = [
        endpoint_slice(name, endpoint("127.0.0.1"), ports=port, suffix=str(number))
        for number, port in enumerate(decider)
    ]
    return [
        service("web"),
        endpoint_slice("web", endpoint("127.0.0.1"), ports=web),
        service(name, {"port": 4180, "protocol": "TCP"}),
        *slices,
    ]


def ask_for(cluster: Cluster, name: str, verdict: int, at: str = "/", **headers: str) -> Answer:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    return ask(cluster.http_port, f"{name}.example.com", at, headers={"X-Verdict": str(verdict), **given})


@pytest.mark.haproxy
def test_a_server_decides_what_goes_on_and_what_the_endpoint_learns(cluster: Cluster) -> None:
    with serving("web") as running, deciding() as decider:
        cluster.serve(
            checked("plain", {"auth-url": URL, "auth-response-headers": "X-User, X-Missing"}),
            checked("signin", {"auth-url": URL, "auth-signin": "https://login.example.com/start?a=1"}),
            checked("own", {"auth-url": URL, "auth-signin": "https://$host/in?rd=$request_uri", "auth-method": "POST"}),
            checked("globs", {"auth-url": "svc://auth:4180/x", "auth-headers-succeed": "x-group-*"}, HI),
            checked("all", {"auth-url": "svc://auth:4180", "auth-headers-request": "X-Verdict,x-a*"}, HI),
            *servers(running["web"], decider),
            libraries=LIBRARIES,
        )

        passed = ask_for(cluster, "plain", 200, "/a?b=1&c=%20", Cookie="k=v", X_User="root", X_Missing="root")
        assert (passed.status, passed.body.split("\n")[:2]) == (200, ["web", "/a?b=1&c=%20"])
        assert "x-user: joe" in passed.body
        assert "root" not in passed.body
        assert "x-other" not in passed.body
        assert passed.headers["set-cookie"] in {"session=1", "more=2"}
        method, target, sent = _Decider.asked[-1]
        assert (method, target) == ("GET", "/check?u=%2Fa%3Fb%3D1%26c%3D%2520")
        assert sent["host"] == "auth.default.svc.cluster.local:4180"
        assert sent["x-original-url"] == "http://plain.example.com/a?b=1&c=%20"
        assert (sent["cookie"], sent["x-real-ip"], sent["x-forwarded-for"]) == ("k=v", "127.0.0.1", "127.0.0.1")

        rejected = ask_for(cluster, "plain", 401)
        assert (rejected.status, rejected.headers["www-authenticate"]) == (401, "Bearer")
        assert "x-user" not in rejected.headers
        assert ask_for(cluster, "plain", 403).status == 403
        assert ask_for(cluster, "plain", 500).status == 503
        assert ask_for(cluster, "plain", 302).status == 503

        away = ask_for(cluster, "signin", 401, "/a?b=1")
        assert away.status == 302
        assert away.headers["location"] == (
            "https://login.example.com/start?a=1&rd=http://signin.example.com%2Fa%3Fb%3D1"
        )
        assert ask_for(cluster, "signin", 403).status == 403
        assert ask_for(cluster, "own", 401, "/x").headers["location"] == "https://own.example.com/in?rd=/x"
        assert _Decider.asked[-1][0] == "POST"

        some = ask_for(cluster, "globs", 200, X_Group_Two="admin", X_Other="mine").body
        assert "x-group-one: staff" in some
        assert "admin" not in some
        assert "x-other: mine" in some

        # To an application that gets headers as variables these are the same names.
        for name in ("plain", "globs", "all"):
            forged = {"X-Verdict": "200", "X_User": "root", "x_group_one": "root", "X-Group_One": "root"}
            body = ask(cluster.http_port, f"{name}.example.com", headers=forged).body
            expected = {"plain": {"x_group_one", "x-group_one"}, "globs": {"x_user"}, "all": set()}[name]
            assert {line.partition(":")[0] for line in body.split("\n") if line.endswith(": root")} == expected

        everything = ask_for(cluster, "all", 200, X_Abc="1", X_Bcd="2")
        assert "x-other: other" in everything.body
        assert "www-authenticate" not in everything.body
        assert _Decider.asked[-1][2]["x-abc"] == "1"
        assert "x-bcd" not in _Decider.asked[-1][2]
        assert ask_for(cluster, "all", 401).headers["x-other"] == "other"


@pytest.mark.haproxy
def test_several_credentials_in_one_request_are_not_sent_to_the_server(cluster: Cluster) -> None:
    with serving("web") as running, deciding() as decider:
        cluster.serve(
            checked("a", {"auth-url": URL}),
            checked("b", {"auth-url": "svc://auth:4180"}, HI),
            *servers(running["web"], decider),
            libraries=LIBRARIES,
        )

        for name in ("a", "b"):
            with closing(http.client.HTTPConnection("127.0.0.1", cluster.http_port, timeout=PATIENCE)) as connection:
                connection.putrequest("GET", "/", skip_host=True)
                for header in (
                    ("Host", f"{name}.example.com"),
                    ("X-Verdict", "200"),
                    ("Authorization", "Basic a"),
                    ("Authorization", "Basic b"),
                ):
                    connection.putheader(*header)
                connection.endheaders()
                assert connection.getresponse().status == 400
        assert _Decider.asked == []
        assert ask_for(cluster, "a", 200, Authorization="Digest username=joe, uri=/").status == 200


@pytest.mark.haproxy
def test_an_error_in_lua_admits_no_request(cluster: Cluster) -> None:
    with serving("web") as running, deciding() as decider:
        rendered = cluster.render(
            checked("guarded", {"auth-url": URL}),
            ingress("free", rule("free.example.com", path("/", "web"))),
            *servers(running["web"], decider),
            libraries=LIBRARIES,
        )
        name = "ingress-auth.lua"
        (key,) = (key for key in rendered.files if key.endswith(name))
        faulty = rendered.files[key].replace("local answer = ask(", "error('fault') local answer = ask(")
        assert faulty != rendered.files[key]
        rendered.files[key] = faulty
        with cluster.running(rendered.text, rendered):
            assert ask_for(cluster, "guarded", 200).status == 503
            assert ask_for(cluster, "free", 200).status == 200


@pytest.mark.haproxy
def test_without_a_usable_answer_no_request_is_admitted(cluster: Cluster) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    strange = trustme.CA().issue_cert("127.0.0.1")
    with serving("web") as running, deciding(strange) as untrusted, deciding() as decider, silent:
        port = silent.getsockname()[1]
        cluster.serve(
            checked("absent", {"auth-url": "http://nobody.default.svc:80/"}),
            checked("gone", {"auth-url": "svc://gone:4180/"}, HI),
            checked("silent", {"auth-url": f"http://127.0.0.1:{port}/"}),
            checked("untrusted", {"auth-url": f"https://127.0.0.1:{untrusted}/"}),
            checked("half", {"auth-url": "http://half.default.svc:4180/"}),
            *servers(running["web"], free_port(), name="gone"),
            *servers(running["web"], free_port(), decider, name="half"),
            libraries=LIBRARIES,
            externalAuthHosts=["127.0.0.1"],
            externalAuthTimeout="1s",
        )

        for name in ("absent", "gone", "silent", "untrusted"):
            answer = ask_for(cluster, name, 200)
            assert (name, answer.status) == (name, 503)
            assert "web" not in answer.body
        # Where one endpoint cannot be reached, another one is asked.
        assert {ask_for(cluster, "half", 200).status for _ in range(6)} == {200}


def generation(rendered: Rendered) -> Generation:
    kinds = {"map": FileKind.MAP, "list": FileKind.CRT_LIST, "lua": FileKind.FILE}
    files = [make_file(kinds[name.rsplit(".")[-1]], name, text) for name, text in rendered.files.items()]
    return make_generation(parse_config(rendered.text, source="haproxy.cfg"), files)


def test_where_it_is_asked_is_data() -> None:
    before = render([checked("a", {"auth-url": URL}), *servers(80, 4180)], libraries=LIBRARIES)
    after = render([checked("a", {"auth-url": URL}), *servers(80, 4180, 4181)], libraries=LIBRARIES)

    plan = make_plan(generation(before), generation(after))
    assert not plan.reloads
    (operation,) = plan.operations
    assert isinstance(operation, SetMapEntry)
    assert operation.map == "maps/nginx-auth.map"


def test_what_is_asked_changes_with_the_rules_that_ask_it() -> None:
    # The former path of the Ingress would be admitted by the answer to the question for the new one.
    def rendered(url: str, where: str, **annotations: str) -> Generation:
        host = rule("a.example.com", path(where, "web"))
        said = {f"nginx.ingress.kubernetes.io/{key}": value for key, value in {"auth-url": url, **annotations}.items()}
        return generation(render([ingress("a", host, annotations=said), *servers(80, 4180)], libraries=LIBRARIES))

    before, after = rendered(f"{URL}/admin", "/admin"), rendered(f"{URL}/any", "/public")
    found = split_plan(before, after)
    assert found.reasons
    assert found.effective is not None
    former = before.files["maps/nginx-auth.map"].content.decode().split()
    latter = found.effective.files["maps/nginx-auth.map"].content.decode().split()
    assert [word for word in former if word not in latter] == []


def test_nothing_of_it_is_there_without_a_library_that_knows_it() -> None:
    rendered = render([ingress("a", rule("a.example.com", path("/", "web"))), service("web")])

    assert "lua" not in rendered.text
    assert not any(name.endswith(".lua") for name in rendered.files)


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"auth-url": "https://$host/oauth2/auth"}, "clients could choose"),
        ({"auth-url": "http://auth.other.svc.cluster.local/"}, "another namespace"),
        ({"auth-url": "http://169.254.169.254/latest"}, "not a Service"),
        ({"auth-url": "http://example.com/#;}\ninjection_point"}, "not a URL"),
        ({"auth-url": "http://user@auth.default.svc/"}, "user name"),
        ({"auth-signin": "https://x/"}, "requires auth-url"),
        ({"enable-global-auth": "true"}, "no global authentication"),
        ({"auth-url": URL, "auth-snippet": "proxy_set_header a b;"}, "not supported"),
        ({"auth-url": URL, "auth-response-headers": "X-A, X B"}, "a space"),
        ({"auth-url": URL, "auth-method": "BREW"}, "not one of"),
        ({"auth-url": URL, "auth-signin": "javascript:alert(1)"}, "neither an http"),
    ],
)
def test_an_authentication_url_with_an_unsafe_target_quarantines_the_ingress(
    annotations: dict[str, str], problem: str
) -> None:
    rendered = render([checked("evil", annotations), *servers(80, 4180)], libraries=LIBRARIES)

    assert problem in rendered.rejected["Ingress default/evil"]
    assert "evil" not in rendered.text


def test_an_administrator_can_list_other_hosts_and_services_elsewhere() -> None:
    rendered = render(
        [
            checked("named", {"auth-url": "https://auth.example.com/x"}),
            checked("shared", {"auth-url": "http://auth.sso.svc.cluster.local:4180/"}),
            service("auth", {"port": 4180, "protocol": "TCP"}, namespace="sso"),
            endpoint_slice("auth", endpoint("10.0.0.1"), ports=4180, namespace="sso"),
        ],
        libraries=LIBRARIES,
        externalAuthHosts=["auth.example.com", "auth.sso.svc"],
    )

    assert rendered.rejected == {}
    lines = (line.split(" ", 1) for line in rendered.files["maps/nginx-auth.map"].splitlines())
    values = {key.rpartition("_")[0]: value for key, value in lines}
    assert values["nginx_default_named"].endswith(",5000,@")
    assert values["nginx_default_shared"].endswith(",5000,10.0.0.1:4180")
