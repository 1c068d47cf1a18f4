"""The terminal UI answers keys with what the console sends."""

from typing import Any

import msgspec
import pytest
import trio
import urwid

from haptic_trio.cli.console_client import ConsoleRejectedError
from haptic_trio.explain.answers import to_json
from haptic_trio.explain.requests import RequestQuestion, match_request
from haptic_trio.explain.resolve import explain
from tests.cli.terminal.console import STATE, FakeSession, Ui, route
from tests.explain.sites import site_of
from tests.explain.test_route_list import web
from tests.support.kubernetes import ingress, path, rule


def page(*routes: dict[str, Any], total: int | None = None, offset: int = 0) -> dict[str, Any]:
    return {"serial": 1, "total": len(routes) if total is None else total, "offset": offset, "counts": {}} | {
        "routes": list(routes)
    }


@pytest.fixture
async def ui() -> Ui:
    site = site_of(*web(), ingress("i", rule("a.test", path("/shop", "web"))))

    def match(target: str, method: str, headers: Any) -> Any:
        question = RequestQuestion(target=target, method=method, headers=headers)
        return msgspec.to_builtins(match_request(site, question))

    return Ui(FakeSession(match=match, explain=lambda target: to_json(explain(site, target))))


async def test_first_screen_has_the_routes_and_fits(ui: Ui) -> None:
    ui.take("state", STATE)
    ui.take("routes", page(route(1), route(2, state="down", reason="no endpoint \x1b[2J")))

    lines = ui.lines()

    assert len(lines) == 24
    assert lines[0] == "haptic-trio  Ready, leader, 1 instance  1 quarantined, 0 warnings"
    assert lines[1].startswith("[Routes] Instances  Problems (2)  Configuration  Activity  Internals")
    assert lines[3].split() == ["serving", "host1.test/", "Ingress", "default/i1", "2"]
    assert lines[4].split()[0] == "down"
    assert lines[5].strip() == r"no endpoint \x1b[2J"
    assert lines[23].endswith("1 of 2")


async def test_search_is_sent_while_it_is_typed_and_ends_with_esc(ui: Ui) -> None:
    ui.take("routes", page(route(1), route(2)))

    await ui.press("/", "l", "o")
    assert ui.session.followed[-1]["search"] == "lo"
    # Letters of the search are not keys.
    lines = await ui.press("q", "enter")
    assert ui.session.followed[-1]["search"] == "loq"
    assert lines[23].startswith("search: loq")
    await ui.press("esc")
    assert ui.session.followed[-1]["search"] == ""


async def test_enter_opens_the_card_from_request_to_server(ui: Ui) -> None:
    ui.take("routes", page(route(1, host="a.test", path="/shop")))

    lines = await ui.press("enter")

    shown = "\n".join(lines)
    assert lines[2] == "From request to server: a.test/shop"
    for part in ("backend default_web_80", "maps/path-prefix.map:", "Ingress default/i", "10.0.0.1:80"):
        assert part in shown
    assert "default_web_80" in ui.session.followed[-1]["backends"]
    figures = {"name": "default_web_80", "up": 1, "sessions": 0, "queued": 0, "rate": 7, "errors": 0}
    ui.take("live", {"processes": [], "backends": [figures | {"answers_5xx": 2, "answers": 9}]})
    assert "1 server up, 7 requests/s" in "\n".join(ui.lines())

    assert (await ui.press("esc"))[2].startswith("STATE")


async def test_a_place_in_a_card_leads_to_its_explanation(ui: Ui) -> None:
    ui.take("routes", page(route(1, host="a.test", path="/shop")))
    lines = await ui.press("enter")
    number = next(at for at, line in enumerate(lines) if line.startswith("matched by")) - 3

    lines = await ui.press(*["down"] * number, "enter")

    assert ui.session.asked[-1][0] == "explain"
    assert lines[2].startswith("maps/path-prefix.map:")


async def test_a_request_is_matched_with_method_and_headers(ui: Ui) -> None:
    lines = await ui.write("m", "POST a.test/shop/cart -H 'X-Kind: a'")

    assert ui.session.asked == [
        ("match", {"target": "a.test/shop/cart", "method": "POST", "headers": (("X-Kind", "a"),)})
    ]
    assert lines[3] == "request       POST a.test/shop/cart"

    lines = await ui.write("m", "a.test b.test")
    assert lines[23].startswith("write one host with a path")


async def test_instances_have_the_last_reload_and_the_next_certificate(ui: Ui) -> None:
    ui.take("state", STATE)
    soon = {"path": "ssl/s.pem", "expires": 1_700_000_000.0 + 3 * 86400 + 600, "names": ["soon.test"]}
    ui.take(
        "certificates", {"serial": 1, "total": 1, "offset": 0, "certificates": [soon | {"objects": ["Secret a/b"]}]}
    )

    lines = await ui.press("2")

    shown = "\n".join(lines)
    assert "backend shop added; caused by Ingress default/shop" in " ".join(shown.split())
    assert any(line.split() == ["2023-11-17,", "in", "3", "d", "soon.test", "Secret", "a/b"] for line in lines)
    assert {"live", "certificates"} <= set(ui.session.followed[-1]["topics"])


async def test_problems_are_complete_and_harmless(ui: Ui) -> None:
    ui.take("state", STATE)

    shown = "\n".join(await ui.press("3"))

    assert r"Ingress default/bad: Quarantined: bad\x1b[31mhost (serving: nothing)" in shown
    assert "manifests: site/x.yaml:3: no kind" in shown


async def test_activity_has_the_reason_of_a_reload_and_events_of_a_level(ui: Ui) -> None:
    ui.take("state", STATE)
    event = {"at": 80.0, "correlation": "1-4", "kind": "InstanceDeployed", "level": "info"}
    ui.take(
        "events",
        [
            event | {"number": 1, "text": "instance reloaded", "fields": {"reasons": ["backend shop added"]}},
            event | {"number": 2, "kind": "X", "text": "a failure", "level": "error", "fields": {}},
        ],
    )

    shown = "\n".join(await ui.press("5"))
    assert "reload: backend shop added" in shown
    assert "changed: Ingress default/shop" in shown
    assert "instance reloaded" in shown
    shown = "\n".join(await ui.press("l"))
    assert "instance reloaded" not in shown
    assert "a failure" in shown
    shown = "\n".join(await ui.press("down", "enter"))
    assert "Reconciliation 1-4" in shown


async def test_internals_have_channels_stores_and_tasks(ui: Ui) -> None:
    ui.take("state", STATE)
    channel = {"name": "changes", "kind": "channel", "used": 1, "size": 8, "high": 2, "senders": 1, "receivers": 1}
    ui.take("channels", [channel | {"waiting_senders": 0, "waiting_receivers": 1, "puts": 0}])
    ui.take("stores", [{"name": "ingresses", "objects": 12, "version": 3}])
    child = {"name": "child", "place": "stages.iteration:3 run", "waits_for": "Event.wait"}
    root = {"name": "root", "nurseries": [{"scope": {"deadline": 102.5}, "tasks": [child]}]}
    ui.take("tasks", {"root": root, "shown": 2, "total": 2})

    shown = "\n".join(await ui.press("6"))

    for part in (
        "deployer: idle",
        "changes",
        "ingresses",
        "Tasks: 2 of 2",
        "  child  stages.iteration:3  Event.wait",
    ):
        assert part in shown
    assert "child" in "\n".join(await ui.write("/", "child"))


async def test_configuration_is_read_by_file_and_searched_in_all(ui: Ui) -> None:
    lines = [{"line": number, "text": f"line {number}", "made_by": "Ingress default/x"} for number in range(1, 4)]
    files = ["haproxy.cfg", "maps/a.map"]

    def config(path: str, offset: int, limit: int) -> Any:
        return {"path": path, "serial": 1, "total": 3, "offset": offset, "lines": lines[:limit], "files": files}

    made_by = {"object": {"kind": "Ingress", "namespace": "default", "name": "x"}}
    hit = {"line": {"path": "maps/a.map", "line": 4, "text": "host b", "is_secret": False}, "made_by": made_by}
    ui.session.answers |= {"config": config, "search": {"text": "b", "hits": [hit], "count": 1}}

    shown = await ui.press("4")
    assert "     2 line 2  # Ingress default/x" in shown
    shown = await ui.write("/", "b")
    assert shown[3] == "maps/a.map:4  host b  # Ingress default/x"
    shown = await ui.press("esc", "f")
    assert shown[3:5] == files
    shown = await ui.press("down", "enter")
    assert shown[2].startswith("maps/a.map: 3 lines")


async def test_only_the_rows_around_the_focus_are_requested_and_made(ui: Ui) -> None:
    ui.take("routes", page(*(route(number) for number in range(100)), total=10_000))
    assert (await ui.press("end"))[23].endswith("10000 of 10000")
    offset = ui.session.followed[-1]["offset"]
    assert offset > 9_900
    ui.take("routes", page(*(route(number) for number in range(offset, 10_000)), total=10_000, offset=offset))

    assert ui.lines()[22].split()[1] == "host9999.test/"
    assert len(ui.app.routes.walker._widgets) < 60


async def test_a_lost_connection_is_shown_and_the_rows_stay(ui: Ui) -> None:
    ui.take("routes", page(route(1)))
    ui.app.lost("it ended\x1b[0m")

    lines = ui.lines()
    assert lines[0] == r"haptic-trio  Not connected: it ended\x1b[0m; reconnecting"
    assert "host1.test" in lines[3]
    ui.app.welcome({"now": {"clock": 1.0, "unix": 2.0}})
    assert "Not connected" not in ui.lines()[0]


async def test_a_rejected_request_is_shown_as_a_card(ui: Ui) -> None:
    ui.session.answers["explain"] = ConsoleRejectedError("there is no line 9")

    lines = await ui.write("e", "haproxy.cfg:9")

    assert "there is no line 9" in lines


async def test_rows_fit_any_size_and_wide_characters(ui: Ui) -> None:
    ui.take("state", STATE)
    ui.take("routes", page(*(route(number, host="店" * 40, reason="理由" * 50) for number in range(30))))

    for size in ((80, 24), (20, 5), (200, 50), (81, 24)):
        ui.size = size
        canvas = ui.app.screen.render(size, True)
        assert (canvas.cols(), canvas.rows()) == size
        ui.lines()


async def test_q_quits_and_keys_are_explained(ui: Ui) -> None:
    assert "quit, as Ctrl-C does" in "\n".join(await ui.press("?"))
    with pytest.raises(urwid.ExitMainLoop):
        await ui.press("q")


async def test_tabs_follow_each_other(ui: Ui) -> None:
    assert "[Internals]" in (await ui.press("left"))[1]
    assert "[Routes]" in (await ui.press("tab"))[1]
    assert "[Problems" in (await ui.press("right", "right"))[1]
    await trio.lowlevel.checkpoint()
