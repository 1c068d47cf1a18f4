"""The Data Plane API of the tests against what the real one was recorded to answer."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.dataplaneapi import server
from tests.support.dataplaneapi.contract import CONTRACT, Sent, check_answer, check_request
from tests.support.dataplaneapi.server import FakeDataplaneApi

RECORDED: list[dict[str, Any]] = [
    json.loads(line) for line in Path(server.__file__).with_name("transcript.jsonl").read_text().splitlines()
]
# Ids are new each time, and the description of a loaded map is HAProxy's.
VARIES = {"id", "runtimeAPI"}
# What counts in a body that has a certain field: the rest is the machine's.
FIELDS = {
    "hard_max_conn": {"version", "pid"},
    "uweight": {"name", "address", "port", "weight", "admin_state", "backend_name"},
    "reload_timestamp": {"id", "status"},
    "qcur": {"addr", "weight"},
}
HEADERS = ("configuration-version", "reload-id", "www-authenticate")


def initial_api() -> FakeDataplaneApi:
    """Return the API as it was when the recording began."""
    text = next(one for one in RECORDED if one["note"] == "raw configuration")["response"]["body"]
    api = FakeDataplaneApi(text, username="admin", password="secret")
    api.reload_delay = 0.0
    api.stores["maps"]["host.map"] = b"app.example.com app\n"
    api.boot()
    return api


async def replay(api: FakeDataplaneApi) -> list[tuple[dict[str, Any], httpx.Response]]:
    """Send every recorded request; transactions get the ids that they have now."""
    ids: dict[str, str] = {}
    answers = []
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://api/v3") as client:
        for exchange in RECORDED:
            recorded = exchange["request"]
            password = "wrong" if exchange["note"] == "wrong password" else "secret"
            text = json.dumps(recorded)
            for old, new in ids.items():
                text = text.replace(old, new)
            request = json.loads(text)
            response = await client.send(build(client, request), auth=httpx.BasicAuth("admin", password))
            if exchange["note"] == "transaction begins":
                ids[exchange["response"]["body"]["id"]] = response.json()["id"]
            answers.append((exchange, response))
    return answers


def build(client: httpx.AsyncClient, request: dict[str, Any]) -> httpx.Request:
    """Return the recorded request."""
    kind, body = request.get("content_type"), request.get("body")
    options: dict[str, Any] = {}
    if kind == "multipart/form-data":
        options["files"] = {
            name: (file["filename"], file["content"].encode()) for name, file in request["files"].items()
        }
    elif kind == "application/json":
        options["json"] = body
    elif kind is not None:
        options = {"content": str(body).encode(), "headers": {"Content-Type": kind}}
    return client.build_request(request["method"], request["path"].lstrip("/"), params=request.get("params"), **options)


def relevant(body: Any) -> Any:
    """Return the part of a recorded body that another API, on another day, answers too."""
    if isinstance(body, list):
        return [relevant(one) for one in body]
    if isinstance(body, str) and body.startswith("# _md5hash"):
        return body.partition("\n")[2]
    if not isinstance(body, dict):
        return body
    for mark, fields in FIELDS.items():
        if mark in body:
            return relevant_of(body, fields)
    if body.get("code") == 400:
        # The place is a temporary file, and its lines are those of the API's rewriting.
        words = body["message"].partition("] ")[2]
        return words.partition("\n")[0], "Fatal errors found" in words
    varies = VARIES | ({"description"} if "pattern loaded" in body.get("description", "") else set())
    return {key: relevant(value) for key, value in body.items() if key not in varies}


def relevant_of(body: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return the fields of *body* with *names*, all of which it has."""
    return {name: body[name] for name in names}


def read(response: httpx.Response) -> Any:
    """Return the body of an answer as it was recorded."""
    if response.status_code == 401 or not response.headers.get("content-type", "").startswith("application/json"):
        return response.text
    return response.json()


async def test_fake_answers_every_recorded_request_as_the_real_one_did() -> None:
    assert len(RECORDED) == 71

    for exchange, response in await replay(initial_api()):
        note, recorded = exchange["note"], exchange["response"]
        assert response.status_code == recorded["status"], note
        for header in HEADERS:
            assert response.headers.get(header) == recorded["headers"].get(header), (note, header)
        assert relevant(read(response)) == relevant(recorded["body"]), note


async def test_fake_reports_requests_outside_the_published_contract() -> None:
    api = initial_api()

    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://api/v3") as client:
        await client.get("services/haproxy/storage/maps", params={"colour": "red"})
        await client.put("services/haproxy/configuration/raw", content="global\n")
        await client.get("services/haproxy/storage/maps")

    assert api.violations == [
        "GET /services/haproxy/storage/maps?colour",
        "PUT /services/haproxy/configuration/raw",
    ]


# What the endpoint does without, and the contract here leaves out.
UNUSED = ("/services/haproxy/transactions", "/services/haproxy/configuration/backends")


def test_recorded_exchanges_are_within_the_contract() -> None:
    client = httpx.AsyncClient(base_url="http://api/v3")
    looked_at = 0
    for exchange in RECORDED:
        recorded, answered = exchange["request"], exchange["response"]
        if recorded["path"].startswith(UNUSED):
            continue
        looked_at += 1
        request = build(client, recorded)
        kind, query = request.headers.get("content-type", ""), dict(request.url.params)
        sent = Sent(recorded["method"], recorded["path"], query, kind, json.dumps(recorded.get("body")).encode())
        faults = list(check_request(sent))
        if answered["headers"].get("content-type", "").startswith("application/json") and answered["status"] < 400:
            body = json.dumps(answered["body"]).encode()
            faults += check_answer(sent, answered["status"], "application/json", body)
        # The real API lets parameters pass that it does not know.
        assert [fault for fault in faults if not fault.endswith("?skip_reload")] == [], exchange["note"]
    assert looked_at > 50


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (Sent("GET", "/services/haproxy/reloads/last", {}, "", b""), "'last' does not match"),
        (Sent("GET", "/services/haproxy/stats/native", {"type": "bind"}, "", b""), "'bind' is none of"),
        (Sent("GET", "/services/haproxy/runtime/ssl_crt_lists/entries", {}, "", b""), "name is missing"),
        (
            Sent("POST", "/services/haproxy/configuration/raw", {"version": "one"}, "text/plain", b"global\n"),
            "'one' is no integer",
        ),
        (
            Sent("PUT", "/services/haproxy/runtime/maps/m.map/entries/a%2Ab", {}, "application/json", b'{"value":"x"}'),
            "'a*b' does not match",
        ),
        (
            Sent("PUT", "/services/haproxy/runtime/maps/m.map/entries/a", {}, "application/json", b"{}"),
            "value is missing",
        ),
        (
            Sent(
                "PUT",
                "/services/haproxy/runtime/backends/b/servers/s",
                {},
                "application/json",
                b'{"admin_state": "gone", "port": 0, "id": "3", "colour": "red"}',
            ),
            "'gone' is none of|0 is out of range|id is the API's|colour is not known",
        ),
        (Sent("PUT", "/services/haproxy/storage/maps/m.map", {}, "application/json", b"{}"), "application/json"),
    ],
)
def test_what_the_contract_does_not_provide_for_is_found(sent: Sent, fault: str) -> None:
    faults = "; ".join(check_request(sent))

    assert all(part in faults for part in fault.split("|"))


def test_every_operation_is_in_the_contract_with_its_parameters() -> None:
    assert len(CONTRACT) > 50
    for name, operation in CONTRACT.items():
        assert name.count("{") == len(operation["path"]), name
