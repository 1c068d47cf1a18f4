"""The requests that change a configuration piece by piece: recorded, answered alike, and not used by the endpoint."""

import json
import uuid
from typing import Any

from starlette.responses import JSONResponse, Response

from tests.support.dataplaneapi.routes import Api, Params, route
from tests.support.dataplaneapi.ssl import ROUTES
from tests.support.dataplaneapi.state import RejectedError, read_server, split_sections, write_server

__all__ = ["ROUTES"]

Sections = list[list[str]]
BACKENDS = "configuration/backends"


def _join(sections: Sections) -> str:
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _find(sections: Sections, backend: str) -> list[str]:
    for section in sections:
        if section[0].split()[:2] == ["backend", backend]:
            return section
    raise RejectedError(404, f"missing object: backend {backend} does not exist")


def _servers_of(section: list[str]) -> dict[str, dict[str, Any]]:
    servers = (read_server(line) for line in section if line.startswith("  server "))
    return {server["name"]: server for server in servers}


def _begin(api: Api, params: Params) -> tuple[Sections, dict[str, Any] | None]:
    if "transaction_id" in params:
        transaction = api.transactions[params["transaction_id"]]
        return transaction["sections"], transaction
    api.check_version(params)
    return list(split_sections(api.text)), None


def _finish(api: Api, sections: Sections, transaction: dict[str, Any] | None) -> int:
    """Store the change, or keep it in its transaction; return the status."""
    if transaction is not None:
        return 202
    api.replace(_join(sections))
    return 201


def _public(transaction: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in transaction.items() if key != "sections"}


@route("GET", "transactions")
def _transactions(api: Api, params: Params, body: bytes) -> Response:
    return JSONResponse([_public(one) for one in api.transactions.values() if one["status"] != "success"])


@route("POST", "transactions")
def _start(api: Api, params: Params, body: bytes) -> Response:
    api.check_version(params)
    name = str(uuid.uuid4())
    transaction = {"_version": api.version, "id": name, "status": "in_progress"}
    api.transactions[name] = {**transaction, "sections": list(split_sections(api.text))}
    return JSONResponse(transaction, 201)


@route("PUT", "transactions/{name}")
def _commit(api: Api, params: Params, body: bytes, name: str) -> Response:
    transaction = api.transactions[name]
    api.replace(_join(transaction["sections"]))
    transaction["status"] = "success"
    if params.get("force_reload") == "true":
        api.force()
        return JSONResponse(_public(transaction))
    return JSONResponse(_public(transaction), 202, {"Reload-ID": api.schedule()})


@route("GET", BACKENDS + "/{backend}")
def _backend(api: Api, params: Params, body: bytes, backend: str) -> Response:
    section = _find(list(split_sections(api.text)), backend)
    words = section[0].split()
    found: dict[str, Any] = {"name": backend}
    if "from" in words:
        found["from"] = words[words.index("from") + 1]
    for line in section[1:]:
        if line.split()[0] == "balance":
            found["balance"] = {"algorithm": line.split()[1]}
    if params.get("full_section") == "true":
        found["servers"] = _servers_of(section)
    return JSONResponse(found)


@route("POST", BACKENDS)
def _add_backend(api: Api, params: Params, body: bytes) -> Response:
    sent = json.loads(body)
    sections, transaction = _begin(api, params)
    sections.append([f"backend {sent['name']} from {sent['from']}", f"  balance {sent['balance']['algorithm']}"])
    return JSONResponse(sent, _finish(api, sections, transaction))


@route("GET", BACKENDS + "/{backend}/servers")
def _servers(api: Api, params: Params, body: bytes, backend: str) -> Response:
    return JSONResponse(list(_servers_of(_find(list(split_sections(api.text)), backend)).values()))


@route("POST", BACKENDS + "/{backend}/servers")
def _add_server(api: Api, params: Params, body: bytes, backend: str) -> Response:
    sent = json.loads(body)
    sections, transaction = _begin(api, params)
    section = _find(sections, backend)
    if sent["name"] in _servers_of(section):
        raise RejectedError(409, f"object already exists: server {sent['name']} already exists in {backend} backend")
    section.append(write_server(sent))
    # Without a reload: the change is sent to the process as well.
    if transaction is None:
        api.process.servers[backend, sent["name"]] = dict(sent)
    return JSONResponse(sent, _finish(api, sections, transaction))


@route("PUT", BACKENDS + "/{backend}/servers/{name}")
def _change_server(api: Api, params: Params, body: bytes, backend: str, name: str) -> Response:
    sent = json.loads(body)
    sections, transaction = _begin(api, params)
    section = _find(sections, backend)
    line = next(line for line in section if line.split()[:2] == ["server", name])
    section[section.index(line)] = write_server(sent)
    changes = {key: sent[key] for key in ("address", "port", "weight") if key in sent}
    api.process.servers[backend, name].update(changes)
    _finish(api, sections, transaction)
    return JSONResponse(sent)


@route("DELETE", BACKENDS + "/{backend}/servers/{name}")
def _remove_server(api: Api, params: Params, body: bytes, backend: str, name: str) -> Response:
    sections, transaction = _begin(api, params)
    section = _find(sections, backend)
    section[:] = [line for line in section if line.split()[:2] != ["server", name]]
    _finish(api, sections, transaction)
    return Response(status_code=202, headers={"Reload-ID": api.schedule()})
