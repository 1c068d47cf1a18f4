"""A match is shown with the answer first, then from the map line to the servers."""

from typing import Any

from haptic_trio.cli.output.explain import lines_of
from haptic_trio.cli.output.request_match import rows_of_match
from haptic_trio.dataplane.figures import BackendFigures, ServerFigures
from haptic_trio.explain.requests import RequestQuestion, match_request
from haptic_trio.explain.site import Site
from tests.explain.sites import site_of
from tests.explain.test_gateways import mixed
from tests.explain.test_route_list import web
from tests.support.kubernetes import ingress, path, rule


def shown(site: Site, target: str, figures: dict[str, BackendFigures] | None = None, **request: Any) -> list[str]:
    match = match_request(site, RequestQuestion(target=target, **request))
    return [line.plain for line in lines_of(rows_of_match(match, "GET", figures or {}))]


def test_a_match_has_its_backend_and_the_live_state_of_servers() -> None:
    site = site_of(*web(), ingress("i", rule("a.test", path("/", "web"))))
    server = ServerFigures(instance="local-1", name="s2", status="DOWN", is_up=False, sessions=0, rate=0)
    live = BackendFigures(
        name="default_web_80", up=1, sessions=3, queued=0, rate=5, errors=1, answers_5xx=2, answers=9, servers=(server,)
    )

    lines = shown(site, "a.test/x", {"default_web_80": live})

    assert lines[:2] == ["request       GET a.test/x", "answer        backend default_web_80"]
    assert any("1 server up, 5 requests/s, 3 present, 0 queued, 1 error;" in line for line in lines)
    assert "server        s1 10.0.0.1:80" in lines
    assert "server        s2 10.0.0.2:80 DOWN, 0 present, 0/s" in lines


def test_missing_routes_backends_and_servers_are_the_answer() -> None:
    site = site_of(*web(), ingress("i", rule("a.test", path("/gone", "gone"))))

    assert shown(site, "a.test/gone")[1].startswith("answer        503: backend default_gone_80")
    assert shown(site, "b.test")[1] == "answer        404: no entry matches"


def test_a_request_to_a_gateway_has_the_verdict_of_each_route() -> None:
    lines = shown(mixed(), "shop.test/shop")

    assert any(line.startswith("gateway       listener ") for line in lines)
    assert any("matches: " in line for line in lines)
