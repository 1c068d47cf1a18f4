"""Filters of the administrator on a real HAProxy: routes name them, and their snippets answer and change requests."""

import re
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.config.model import Config, Snippet
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.operations import AddBackend
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.gateway.filters.test_filters import leading_to, mirroring
from tests.gateway.objects import gateway, made, route, rule, service
from tests.gateway.serving import render, served
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import QuietHandler, answering, ask, serving

CLIENTS = """\
{% set networks = route | dig("metadata.annotations['example.com/clients']", "") %}
    http-request deny deny_status 403 unless { src {{ networks | network }} }
"""
MARK = """\
    http-request set-header x-route {{ (route.metadata.namespace ~ "/" ~ route.metadata.name) | word }}
    http-response set-header x-mark 1
"""
USER = Config(
    template_snippets={
        "gateway-filter-clients": Snippet(template=CLIENTS),
        "gateway-filter-mark": Snippet(template=MARK),
    }
)
FILTERS = {"clients": ["web"], "mark": ["*"], "other": ["another"], "error-pages": ["*"]}
PAGES = made("ConfigMap", "pages", version="v1", data={"404": "<p>not here</p>", "503": "<p>soon</p>", "999": "no"})


class NotFound(QuietHandler):
    """Answers each request with 404."""

    def answer(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"mine")


def extension(name: str, **fields: str) -> dict[str, Any]:
    """Return a filter that names the filter *name* of the administrator."""
    return {
        "type": "ExtensionRef",
        "extensionRef": {"group": "haptic-trio.io", "kind": "Filter", "name": name, **fields},
    }


def filtered(name: str, *rules: dict[str, Any], clients: str = "127.0.0.0/8", **fields: Any) -> Resource:
    """Return a route whose annotation lists *clients*."""
    found = route(name, *rules, **fields)
    found["metadata"]["annotations"] = {"example.com/clients": clients}
    return found


def rendered_backends(text: str) -> dict[str, str]:
    """Return the lines of the backends with filters, by name."""
    sections: list[tuple[str, str]] = re.findall(
        r"^backend (gateway::\S+::\S+) from .*\n((?:[ #].*\n|\n)*)", text, re.MULTILINE
    )
    return dict(sections)


def generation(rendered: Rendered) -> Generation:
    """Return *rendered* as HAProxy gets it."""
    return make_generation(parse_config(rendered.text), list(rendered.files.values()))


@pytest.mark.haproxy
def test_requests_pass_the_filters_of_their_rule_and_backend_and_no_other_requests_do(tmp_path: Path) -> None:
    port = free_port()
    both = rule("/both", to="web", filters=[extension("clients")])
    both["backendRefs"][0]["filters"] = [extension("mark")]
    set_header = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-set", "value": "1"}]}}
    objects = [
        gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
        PAGES,
        filtered("open", both, hostnames=["open.test"]),
        filtered("closed", both, hostnames=["closed.test"], clients="192.0.2.0/24"),
        filtered(
            "more",
            rule("/plain", to="web"),
            rule("/set", to="web", filters=[set_header, extension("mark")]),
            rule("/unknown", to="web", filters=[extension("nope"), extension("mark")]),
            rule("/foreign", to="web", filters=[extension("other")]),
            rule("/kind", to="web", filters=[extension("mark", kind="Snippet")]),
            rule("/gone", to="empty", filters=[extension("error-pages")]),
            rule("/app", to="lost", filters=[extension("error-pages")]),
            rule("/own", to="lost"),
            hostnames=["more.test"],
        ),
    ]
    with serving("web") as ports, answering(NotFound) as lost:
        objects += [*leading_to("web", ports["web"]), *leading_to("lost", lost), service("empty")]
        with served(tmp_path, port, *objects, user=USER, gatewayFilters=FILTERS, gatewayErrorPages="web/pages"):
            passed, denied = ask(port, "open.test", "/both"), ask(port, "closed.test", "/both")
            plain, changed = ask(port, "more.test", "/plain"), ask(port, "more.test", "/set")
            rejected = [ask(port, "more.test", path).status for path in ("/unknown", "/foreign", "/kind")]
            gone, lost_page, own_page = (ask(port, "more.test", path) for path in ("/gone", "/app", "/own"))

    assert (passed.status, passed.headers["x-mark"]) == (200, "1")
    assert "x-route: web/open" in passed.body
    assert denied.status == 403
    assert (plain.status, "x-mark" in plain.headers, "x-route" in plain.body) == (200, False, False)
    assert ("x-set: 1" in changed.body, "x-route: web/more" in changed.body) == (True, True)
    assert rejected == [500, 500, 500]
    assert (gone.status, gone.body, gone.headers["content-type"]) == (503, "<p>soon</p>", "text/html")
    assert (lost_page.status, lost_page.body) == (404, "<p>not here</p>")
    assert (own_page.status, own_page.body) == (404, "mine")


@pytest.mark.haproxy
def test_a_rule_whose_filter_cannot_be_used_is_answered_with_500_and_not_by_a_shorter_path(tmp_path: Path) -> None:
    port = free_port()
    clients = [extension("clients")]
    behind = rule("/behind", to="web")
    behind["backendRefs"][0]["filters"] = clients
    exact = rule(to="web", matches=[{"path": {"type": "Exact", "value": "/exact"}}], filters=clients)
    role = {"path": {"type": "PathPrefix", "value": "/role"}, "headers": [{"name": "x-role", "value": "admin"}]}
    costly = {"path": {"value": "/costly"}, "headers": [{"name": "a", "type": "RegularExpression", "value": "(a+)+"}]}
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": "d.test"}}
    objects = [
        gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
        filtered("open", rule("/", to="web"), hostnames=["a.test"]),
        filtered(
            "bad",
            rule("/admin", to="web", filters=clients),
            exact,
            behind,
            rule(to="web", matches=[role], filters=clients),
            rule("/admin/open", to="web"),
            hostnames=["a.test"],
            clients="192.0.2.0/33",
        ),
        filtered(
            "parts",
            rule("/", to="web"),
            rule("/copied", to="web", filters=[*clients, *mirroring("web")]),
            rule("/many", to="web", filters=[extension(f"f{number}") for number in range(9)]),
            rule("/retried", to="web", filters=clients, retry={"codes": [999]}),
            rule("/costly", to="web"),
            rule(to="web", matches=[costly, {"path": {"value": "/beside"}}], filters=clients),
            hostnames=["b.test"],
        ),
        filtered("moved", rule("/", to="web", filters=[*clients, redirect]), hostnames=["c.test"]),
    ]
    with serving("web") as ports:
        objects += leading_to("web", ports["web"])
        settings: dict[str, Any] = {"user": USER, "gatewayFilters": FILTERS, "rejected": ("HTTPRoute web/bad",)}
        with served(tmp_path, port, *objects, **settings) as rendered:
            closed = [ask(port, "a.test", path).status for path in ("/admin/x", "/exact", "/behind")]
            closed.append(ask(port, "a.test", "/role", headers={"x-role": "admin"}).status)
            others = [ask(port, "a.test", path).status for path in ("/", "/exact/x", "/role", "/admin/open")]

            targets = "/copied", "/many", "/retried", "/costly", "/beside"
            closed += [ask(port, "b.test", path).status for path in targets]
            closed.append(ask(port, "c.test", "/").status)
            others.append(ask(port, "b.test", "/").status)

    assert closed == [500] * 10
    assert others == [200] * 5
    messages = [one.message for one in rendered.warnings if str(one.subject) == "HTTPRoute web/parts"]
    assert len(messages) == 4
    assert messages[0].startswith("spec.rules[1]: filters: ExtensionRef and RequestMirror cannot be combined")
    assert messages[0].endswith("; requests of the rule are answered with 500")


def test_a_value_that_the_snippet_rejects_costs_its_route_alone() -> None:
    objects = [
        gateway(),
        *leading_to("web", 80),
        filtered("good", rule("/good", to="web", filters=[extension("clients")])),
        filtered("bad", rule("/bad", to="web", filters=[extension("clients")]), clients="0.0.0.0/0 } || { always_true"),
        filtered("unset", rule("/mark", to="web", filters=[extension("mark")]), clients="\n"),
    ]
    rendered = render(*objects, user=USER, gatewayFilters=FILTERS)

    assert [str(one.subject) for one in rendered.rejections] == ["HTTPRoute web/bad"]
    assert rendered_backends(rendered.text).keys() == {
        "gateway::web_web_80::HTTPRoute_web_good::clients",
        "gateway::web_web_80::HTTPRoute_web_unset::mark",
    }
    assert "always_true" not in rendered.text


def test_a_filter_of_a_grpc_route_is_in_a_backend_that_speaks_http_2() -> None:
    found = route(
        "calls", {"filters": [extension("mark")], "backendRefs": [{"name": "web", "port": 80}]}, kind="GRPCRoute"
    )
    rendered = render(gateway(), *leading_to("web", 8000), found, user=USER, gatewayFilters=FILTERS)

    [(name, body)] = rendered_backends(rendered.text).items()
    assert name == "gateway::web_web_80_h2::GRPCRoute_web_calls::mark"
    assert "http-request set-header x-route 'web/calls'" in body
    assert "server s1 127.0.0.1:8000 proto h2" in body


def test_error_pages_without_a_config_map_are_reported_to_the_owner() -> None:
    objects = [gateway(), *leading_to("web", 80), route("r", rule("/", to="web", filters=[extension("error-pages")]))]
    for pages in ("", "web/missing"):
        rendered = render(*objects, gatewayFilters=FILTERS, gatewayErrorPages=pages)
        [warning] = [one for one in rendered.warnings if str(one.subject) == "HTTPRoute web/r"]
        assert "gatewayErrorPages" in warning.message


def test_a_route_with_a_filter_for_all_routes_is_data_on_haproxy_3_4() -> None:
    shared = Config(
        template_snippets={"gateway-shared-filter-note": Snippet(template="    http-response set-header x-note 1\n")}
    )
    objects = [gateway(), PAGES, *leading_to("web", 80), service("other")]
    settings: dict[str, Any] = {
        "gatewayFilters": {"note": ["*"], "error-pages": ["*"]},
        "gatewayErrorPages": "web/pages",
    }
    names = ("note", "error-pages")
    routes = [route(name, rule(f"/{name}", to="web", filters=[extension(name)])) for name in names]
    both = route("both", rule("/both", to="web", filters=[extension("note"), extension("error-pages")]))

    before = render(*objects, user=shared, **settings)
    after = render(*objects, *routes, user=shared, **settings)
    mixed = render(*objects, both, user=shared, **settings)

    for name in names:
        assert f"HTTPRoute_web_{name}::{name} from profile-gateway-filter-{name}\n" in after.text
    plan = make_plan(generation(before), generation(after), capabilities=capabilities_of((3, 4)))
    assert plan.reasons == ()
    assert sum(isinstance(one, AddBackend) for one in plan.operations) == 3
    [(_, body)] = rendered_backends(mixed.text).items()
    assert "x-note" in body
    assert "http-error status 503" in body


@pytest.mark.haproxy
def test_routes_with_the_longest_names_have_backends_of_their_own(tmp_path: Path) -> None:
    port = free_port()
    names = [f"{number}".rjust(63, "f") for number in range(8)]
    snippets = {f"gateway-filter-{name}": Snippet(template=MARK) for name in names}
    filters = [extension(name) for name in names]
    first, second = "a" * 252 + "b", "a" * 252 + "c"
    persistent = rule("/", to="web", sessionPersistence={"type": "Cookie", "sessionName": "s" * 128}, filters=filters)
    objects = [
        gateway("g" * 253, {"name": "web", "port": port, "protocol": "HTTP"}),
        route(first, persistent, hostnames=["one.test"]),
        route(second, rule("/", to="web", filters=filters), hostnames=["two.test"]),
    ]
    for one in objects[1:]:
        one["spec"]["parentRefs"][0]["name"] = "g" * 253
    user = Config(template_snippets=snippets)
    with serving("web") as ports:
        objects += leading_to("web", ports["web"])
        with served(tmp_path, port, *objects, user=user, gatewayFilters={name: ["*"] for name in names}) as rendered:
            answers = [ask(port, host, "/") for host in ("one.test", "two.test")]

    assert rendered.rejections == ()
    assert [f"x-route: web/{name}" in answer.body for name, answer in zip((first, second), answers, strict=True)] == [
        True
    ] * 2
    backends = rendered_backends(rendered.text)
    assert len(backends) == 2
    assert max(map(len, backends)) <= 200


@pytest.mark.haproxy
def test_a_rule_with_a_filter_of_a_type_that_is_not_supported_is_answered_with_500_if_it_is_invalid(
    tmp_path: Path,
) -> None:
    port = free_port()
    external = {"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP", "backendRef": {"name": "a", "port": 80}}}
    invalid = {"retry": {"codes": [999], "attempts": 1}}
    behind = rule("/behind", to="web", **invalid)
    behind["backendRefs"][0]["filters"] = [external]
    objects = [
        gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
        route(
            "parts",
            rule("/", to="web"),
            rule("/admin", to="web", filters=[external], **invalid),
            behind,
            rule("/plain", to="web", **invalid),
            hostnames=["parts.test"],
        ),
    ]
    with serving("web") as ports, served(tmp_path, port, *objects, *leading_to("web", ports["web"])):
        statuses = [ask(port, "parts.test", path).status for path in ("/", "/admin", "/behind", "/plain")]

    assert statuses == [200, 500, 500, 200]
