"""The Data Plane API of the tests against what the real one was recorded to answer."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.support import dataplaneapi
from tests.support.dataplaneapi import FakeDataplaneApi

RECORDED: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(dataplaneapi.__file__).with_name("dataplaneapi_transcript.jsonl").read_text().splitlines()
]
# Ids are made up anew, and the description of a loaded map is HAProxy's.
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
