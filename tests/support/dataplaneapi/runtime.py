"""The requests that ask or change the running process behind the Data Plane API of the tests."""

import json
from typing import Any

from starlette.responses import JSONResponse, Response

from tests.support.dataplaneapi.routes import ROUTES, Api, Params, route
from tests.support.dataplaneapi.state import ROOT, RejectedError, run_server

__all__ = ["ROUTES"]

BUFFER = 8192
"""Bytes that the API sends to HAProxy at once."""


@route("GET", "runtime/info")
def _process_info(api: Api, params: Params, body: bytes) -> Response:
    info = {"version": api.haproxy_version, "pid": api.pid, "hard_max_conn": 9973}
    return JSONResponse({"info": info, "runtimeAPI": f"{ROOT}/m.sock"})


@route("GET", "runtime/backends/{backend}/servers")
def _servers(api: Api, params: Params, body: bytes, backend: str) -> Response:
    servers = [server for (name, _), server in api.process.servers.items() if name == backend]
    return JSONResponse([{key: value for key, value in server.items() if key != "status"} for server in servers])


def _find_server(api: Api, backend: str, server: str) -> dict[str, Any]:
    try:
        return api.process.servers[backend, server]
    except KeyError:
        raise RejectedError(404, f"no data for {backend}/{server}: not found") from None


@route("GET", "runtime/backends/{backend}/servers/{server}")
def _server(api: Api, params: Params, body: bytes, backend: str, server: str) -> Response:
    return JSONResponse(_find_server(api, backend, server))


@route("PUT", "runtime/backends/{backend}/servers/{server}")
def _change_server(api: Api, params: Params, body: bytes, backend: str, server: str) -> Response:
    found = _find_server(api, backend, server)
    reported = json.loads(body)
    if "weight" in reported and api.knows_weights:
        found["weight"] = found["uweight"] = reported["weight"]
    found.update({key: reported[key] for key in ("address", "port", "admin_state") if key in reported})
    return JSONResponse(found)


@route("POST", "runtime/backends/{backend}/servers")
def _add_server(api: Api, params: Params, body: bytes, backend: str) -> Response:
    reported = json.loads(body)
    if backend not in api.process.backends:
        raise RejectedError(404, "[3] No such backend. [add server]")
    if (backend, reported["name"]) in api.process.servers:
        raise RejectedError(409, "[3] Already exists a server with the same name in backend. [add server]")
    count = sum(name == backend for name, _ in api.process.servers)
    server = run_server(reported, backend, count, reported.get("weight", 1), "maint")
    api.process.servers[backend, reported["name"]] = server
    return JSONResponse(reported, 201)


@route("DELETE", "runtime/backends/{backend}/servers/{server}")
def _delete_server(api: Api, params: Params, body: bytes, backend: str, server: str) -> Response:
    _find_server(api, backend, server)["admin_state"] = "maint"
    if (backend, server) in api.process.busy:
        message = "[3] Server still has connections attached to it, cannot remove it. [del server]"
        raise RejectedError(500, message)
    del api.process.servers[backend, server]
    return Response(status_code=204)


@route("GET", "runtime/maps")
def _maps(api: Api, params: Params, body: bytes) -> Response:
    return JSONResponse([{"file": f"{ROOT}/maps/{name}", "id": "4", "storage_name": name} for name in api.process.maps])


def _find_map(api: Api, name: str) -> list[tuple[str, str]]:
    if name not in api.process.maps:
        raise RejectedError(404, f"map {name}: not found")
    return api.process.maps[name]


@route("PUT", "runtime/maps/{name}")
def _replace_map(api: Api, params: Params, body: bytes, name: str) -> Response:
    entries, reported = _find_map(api, name), [(entry["key"], entry["value"]) for entry in json.loads(body)]
    # What fits into one command is added to what is there; only more than that replaces it.
    kept = entries if sum(len(f"{key} {value}\n") for key, value in reported) <= BUFFER else []
    entries[:] = [*kept, *reported]
    _sync_map(api, params, name)
    return JSONResponse(json.loads(body), 201)


@route("DELETE", "runtime/maps/{name}")
def _clear_map(api: Api, params: Params, body: bytes, name: str) -> Response:
    _find_map(api, name).clear()
    _sync_map(api, params, name)
    return Response(status_code=204)


@route("GET", "runtime/maps/{name}/entries")
def _entries(api: Api, params: Params, body: bytes, name: str) -> Response:
    entries = _find_map(api, name)
    if not entries:
        raise RejectedError(404, f"map {name} has no entries: not found")
    return JSONResponse([{"id": hex(index), "key": key, "value": value} for index, (key, value) in enumerate(entries)])


@route("POST", "runtime/maps/{name}/entries")
def _add_entry(api: Api, params: Params, body: bytes, name: str) -> Response:
    entry = json.loads(body)
    entries = _find_map(api, name)
    if any(key == entry["key"] for key, _ in entries):
        raise RejectedError(409, "already exists")
    entries.append((entry["key"], entry["value"]))
    _sync_map(api, params, name)
    return JSONResponse(entry, 201)


@route("PUT", "runtime/maps/{name}/entries/{key}")
def _set_entry(api: Api, params: Params, body: bytes, name: str, key: str) -> Response:
    entries = _find_map(api, name)
    index = _find_entry(entries, key)
    entries[index] = (key, json.loads(body)["value"])
    _sync_map(api, params, name)
    return JSONResponse({"key": key, "value": entries[index][1]})


@route("DELETE", "runtime/maps/{name}/entries/{key}")
def _delete_entry(api: Api, params: Params, body: bytes, name: str, key: str) -> Response:
    entries = _find_map(api, name)
    del entries[_find_entry(entries, key)]
    _sync_map(api, params, name)
    return Response(status_code=204)


def _find_entry(entries: list[tuple[str, str]], key: str) -> int:
    for index, (name, _) in enumerate(entries):
        if name == key:
            return index
    raise RejectedError(404, f"{key}: not found")


def _sync_map(api: Api, params: Params, name: str) -> None:
    if params.get("force_sync") == "true":
        lines = [f"{key} {value}\n" for key, value in api.process.maps[name]]
        api.stores["maps"][name] = "".join(lines).encode()
