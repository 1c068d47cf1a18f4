"""Filters that change headers, on a real HAProxy: by its own actions where it has them, or else by Lua."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, made, route, rule
from tests.gateway.serving import endpoints, served
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import Answer, ask, serving

HOSTILE = "%[env(HOME)] \\ \"'; #,|&>%41=é"


def modifier(direction: str, **changes: Any) -> dict[str, Any]:
    """Return a filter for the headers of the *direction*: set and add by name, and a list of names to remove."""
    found = {
        key: [{"name": name, "value": value} for name, value in each.items()] if isinstance(each, dict) else each
        for key, each in changes.items()
    }
    return {"type": f"{direction}HeaderModifier", f"{direction.lower()}HeaderModifier": found}


def answered(directory: Path, *filters: dict[str, Any], **headers: str) -> tuple[list[str], Answer]:
    """Return the header lines that the application gets of a request, and the answer to the client."""
    port = free_port()
    with serving("web") as running:
        objects: list[Resource] = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            made("Service", "web", version="v1", spec={"ports": [{"port": 80}]}),
            endpoints("web", ("", running["web"])),
            route("web", rule("/", to="web", filters=list(filters))),
        ]
        with served(directory, port, *objects):
            answer = ask(port, "a.test", headers=headers)
    assert answer.status == 200
    return answer.body.split("\n")[2:], answer


def values(lines: list[str], name: str) -> list[str]:
    """Return the values of the header *name* in *lines*."""
    return [line.partition(": ")[2] for line in lines if line.partition(": ")[0] == name]


@pytest.mark.haproxy
def test_headers_of_the_request_are_set_added_and_removed(tmp_path: Path) -> None:
    new = {"X-Set": "new", "X-New": HOSTILE, "X-Empty": ""}
    changes = modifier("Request", set=new, add={"x-add": "2"}, remove=["X-Gone", "X-None"])
    sent = {"X-Set": "old", "X-Add": "1", "X-Gone": "1", "X-Gone-2": "1"}
    lines, _ = answered(tmp_path, changes, **sent)

    assert values(lines, "x-set") == ["new"]
    assert [one.encode("latin-1").decode() for one in values(lines, "x-new")] == [HOSTILE]
    assert values(lines, "x-empty") == [""]
    assert values(lines, "x-add") == ["1", "2"]
    assert (values(lines, "x-gone"), values(lines, "x-gone-2")) == ([], ["1"])


@pytest.mark.haproxy
def test_a_request_has_the_one_host_that_a_filter_sets(tmp_path: Path) -> None:
    lines, _ = answered(
        tmp_path, modifier("Request", set={"hOST": "b.test:8080"}, remove=["Upgrade", "TE", "Keep-Alive"]),
        **{"Keep-Alive": "timeout=5", "TE": "trailers", "Upgrade": "x", "Connection": "upgrade"},
    )  # fmt: skip

    assert values(lines, "host") == ["b.test:8080"]
    assert [values(lines, name) for name in ("upgrade", "te", "keep-alive")] == [[], [], []]


@pytest.mark.haproxy
def test_headers_of_the_response_are_set_added_and_removed(tmp_path: Path) -> None:
    long = {f"x-{length}": "a" * length for length in (239, 240, 2287, 2288)}
    lines, answer = answered(
        tmp_path, modifier("Response", set={"Date": "now", **long}, add={"x-add": HOSTILE}, remove=["server"])
    )

    assert answer.headers["date"] == "now"
    assert {name: answer.headers[name] for name in long} == long
    assert answer.headers["x-add"].encode("latin-1").decode() == HOSTILE
    assert "server" not in answer.headers
    assert values(lines, "x-add") == []


@pytest.mark.haproxy
def test_the_order_of_changes_of_one_header_counts(tmp_path: Path) -> None:
    lines, answer = answered(
        tmp_path,
        modifier("Request", set={"x-a": "1", "host": "b.test"}, add={"x-b": "2"}, remove=["x-a"]),
        modifier("Response", set={"x-a": "1"}, add={"x-b": "2"}, remove=["x-b"]),
        **{"x-a": "0"},
    )

    assert (values(lines, "x-a"), values(lines, "x-b"), values(lines, "host")) == ([], ["2"], ["b.test"])
    assert answer.headers["x-a"] == "1"
    assert "x-b" not in answer.headers


@pytest.mark.haproxy
@pytest.mark.parametrize("is_of_backend", [False, True])
@pytest.mark.parametrize("name", ["X-Set-It", "X_Set.It"])
def test_another_spelling_of_a_header_that_is_set_or_removed_does_not_arrive(
    tmp_path: Path, name: str, is_of_backend: bool
) -> None:
    changes = modifier("Request", set={name: "edge", "X-_two": "edge"}, add={"X-Add": "edge"}, remove=["X-Gone"])
    names = ["X-Set-It", "X_Set-It", "x.set_it", "X_Gone", "X__two", "X--two", "X_Other", "X_Add", "X-_two"]
    port = free_port()
    with serving("web") as running:
        backend = {"name": "web", "port": 80, "filters": [changes] if is_of_backend else []}
        objects: list[Resource] = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            made("Service", "web", version="v1", spec={"ports": [{"port": 80}]}),
            endpoints("web", ("", running["web"])),
            route("web", {"backendRefs": [backend], "filters": [] if is_of_backend else [changes]}),
        ]
        with served(tmp_path, port, *objects):
            lines = ask(port, "a.test", headers=dict.fromkeys(names, "client")).body.split("\n")[2:]
            plain = ask(port, "a.test", headers={"X-Set-It": "client"}).body.split("\n")[2:]

    found = dict(line.split(": ") for line in lines if line.endswith((": client", ": edge")))
    kept = {"x-add": "edge", "x_add": "client", "x_other": "client"}
    assert found == {name.lower(): "edge", "x-_two": "edge", **kept}
    assert [line for line in plain if line.lower().startswith("x") and "set" in line] == [f"{name.lower()}: edge"]
