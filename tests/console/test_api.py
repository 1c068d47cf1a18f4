"""The JSON resources take only requests with the token, of the same site, with parameters that have a meaning."""

from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from haptic_trio.console.api import make_api
from haptic_trio.console.configuration import NotNowError
from haptic_trio.console.hosts import Hosts
from haptic_trio.console.protocol import CertificatePage, CycleView, Moment, RoutePage
from haptic_trio.console.watched import Watched
from haptic_trio.health import HealthReport, make_app

TOKEN = "0123456789abcdef"
SITE = "http://127.0.0.1:9090"


class Pages:
    """Stands for the routes of a controller: notes what is asked, and answers or not."""

    def __init__(self, *, is_ready: bool = True) -> None:
        self.asked: list[dict[str, Any]] = []
        self._is_ready = is_ready

    async def page(self, **asked: Any) -> RoutePage:
        self.asked.append(asked)
        if not self._is_ready:
            raise NotNowError("there is no configuration yet")
        return RoutePage(serial=1, routes=(), total=0, offset=asked["offset"], counts={})


async def ask(
    pages: Pages, query: str = "", *, headers: dict[str, str] | None = None, site: str = SITE
) -> httpx.Response:
    watched = cast("Watched", SimpleNamespace(routes=pages))
    app = Starlette(routes=make_api(watched, TOKEN, Hosts()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=site) as client:
        return await client.get(f"/api/v1/routes{query}", headers=headers or {"Authorization": f"Bearer {TOKEN}"})


async def test_parameters_reach_the_list_of_routes() -> None:
    pages = Pages()

    answer = await ask(pages, "?search=shop&state=down&offset=20&limit=5")

    assert (answer.status_code, answer.json()["offset"]) == (200, 20)
    assert pages.asked == [{"search": "shop", "state": "down", "offset": 20, "limit": 5}]


@pytest.mark.parametrize(
    "query", ["?state=broken", "?offset=-1", "?limit=x", "?limit=1e3", f"?offset={'9' * 30}", f"?search={'x' * 1001}"]
)
async def test_a_parameter_without_a_meaning_is_named(query: str) -> None:
    pages = Pages()

    answer = await ask(pages, query)

    assert answer.status_code == 400
    assert answer.json()["error"].startswith(query[1:].partition("=")[0])
    assert pages.asked == []


@pytest.mark.parametrize(
    ("headers", "site", "status"),
    [
        ({"Accept": "*/*"}, SITE, 401),
        ({"Authorization": "Bearer wrong"}, SITE, 401),
        ({"Authorization": f"Basic {TOKEN}"}, SITE, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, "http://rebound.example:9090", 421),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://other.example"}, SITE, 403),
    ],
)
async def test_requests_of_others_learn_nothing(headers: dict[str, str], site: str, status: int) -> None:
    pages = Pages()

    assert (await ask(pages, headers=headers, site=site)).status_code == status
    assert pages.asked == []


@pytest.mark.parametrize("path", ["/api/v1/routes", "/api/v1/routes/", "/api/v1/", "/api/v1/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_path_and_no_method_answers_to_another_host(path: str, method: str) -> None:
    def report() -> HealthReport:
        raise AssertionError("a console path")

    app = make_app(report, CollectorRegistry(), make_api(cast("Watched", SimpleNamespace()), TOKEN, Hosts()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://rebound.example:9090") as client:
        assert (await client.request(method, path)).status_code == 421


async def test_without_a_configuration_the_client_is_asked_to_come_back() -> None:
    answer = await ask(Pages(is_ready=False))

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": "there is no configuration yet"}


async def test_certificates_are_paged_for_requests_with_the_token() -> None:
    asked: list[dict[str, int]] = []

    async def page(**given: int) -> CertificatePage:
        asked.append(given)
        return CertificatePage(serial=1, total=0, offset=given["offset"], certificates=())

    watched = cast("Watched", SimpleNamespace(certificates=SimpleNamespace(page=page)))
    app = Starlette(routes=make_api(watched, TOKEN, Hosts()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=SITE) as client:
        denied = await client.get("/api/v1/certificates")
        answer = await client.get("/api/v1/certificates?offset=3&limit=2", headers={"Authorization": f"Bearer {TOKEN}"})

    assert denied.status_code == 401
    assert (answer.status_code, answer.json()["offset"]) == (200, 3)
    assert asked == [{"offset": 3, "limit": 2}]


async def test_a_search_has_its_own_page_and_context_and_needs_a_text() -> None:
    asked: list[tuple[str, dict[str, int]]] = []

    async def search(text: str, **given: int) -> dict[str, Any]:
        asked.append((text, given))
        return {"answer": "search", "text": text, "hits": [], "count": 0, "offset": given["offset"]}

    watched = cast("Watched", SimpleNamespace(configuration=SimpleNamespace(search=search)))
    app = Starlette(routes=make_api(watched, TOKEN, Hosts()))
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"{SITE}/api/v1") as client:
        denied = await client.get("/search?search=shop")
        answer = await client.get("/search?search=shop%20a&context=2&offset=5&limit=7", headers=bearer)
        wrong = [
            await client.get(f"/search?{query}", headers=bearer) for query in ("", "search=%20", "search=a&context=x")
        ]

    assert denied.status_code == 401
    assert (answer.status_code, answer.json()["offset"]) == (200, 5)
    assert [one.status_code for one in wrong] == [400, 400, 400]
    assert asked == [("shop a", {"context": 2, "offset": 5, "limit": 7})]


async def test_changes_are_those_of_the_state() -> None:
    change = CycleView(correlation="1-2", operations={"server added": 1}, traffic=0.1)
    moment = Moment(clock=1.0, unix=2.0)
    watched = cast("Watched", SimpleNamespace(state=lambda: SimpleNamespace(cycles=(change,)), moment=lambda: moment))
    app = Starlette(routes=make_api(watched, TOKEN, Hosts()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"{SITE}/api/v1") as client:
        answer = await client.get("/changes", headers={"Authorization": f"Bearer {TOKEN}"})

    assert answer.json() == {
        "changes": [{"correlation": "1-2", "operations": {"server added": 1}, "traffic": 0.1}],
        "now": {"clock": 1.0, "unix": 2.0},
    }
