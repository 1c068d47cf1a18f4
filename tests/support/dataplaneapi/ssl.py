"""Certificates in the running process, and statistics, of the Data Plane API of the tests."""

import hashlib
import json
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from starlette.responses import JSONResponse, Response

from tests.support.dataplaneapi.routes import Api, Params, route
from tests.support.dataplaneapi.runtime import ROUTES
from tests.support.dataplaneapi.state import RejectedError, describe_certificate

__all__ = ["ROUTES"]

LISTS = "runtime/ssl_crt_lists/entries"


@route("GET", "runtime/ssl_certs")
def _certificates(api: Api, params: Params, body: bytes) -> Response:
    if not api.knows_certificates:
        raise RejectedError(404, "path runtime/ssl_certs was not found")
    names = sorted(api.process.certificates)
    return JSONResponse([{"storage_name": name, "description": name.rpartition("/")[2]} for name in names] or None)


def _find(api: Api, name: str) -> bytes:
    if name not in api.process.certificates:
        raise RejectedError(500, f"Can't display the content of '{name}': not found")
    return api.process.certificates[name]


@route("GET", "runtime/ssl_certs/{name}")
def _certificate(api: Api, params: Params, body: bytes, name: str) -> Response:
    content = _find(api, name)
    der = x509.load_pem_x509_certificates(content)[0].public_bytes(Encoding.DER)
    mark = hashlib.sha1(der).hexdigest().upper()
    return JSONResponse({"storage_name": name, "status": "Used", "sha1_finger_print": mark})


@route("PUT", "runtime/ssl_certs/{name}")
def _replace(api: Api, params: Params, body: tuple[str, bytes], name: str) -> Response:
    _find(api, name)
    describe_certificate(body[1])
    api.process.certificates[name] = body[1]
    return Response(status_code=200)


@route("DELETE", "runtime/ssl_certs/{name}")
def _delete(api: Api, params: Params, body: bytes, name: str) -> Response:
    _find(api, name)
    if any(line.split()[0] == name for lines in api.process.crt_lists.values() for line in lines):
        raise RejectedError(500, f"certificate '{name}' in use, can't be deleted!")
    del api.process.certificates[name]
    return Response(status_code=204)


def _lines(api: Api, params: Params) -> list[str]:
    if params["name"] not in api.process.crt_lists:
        raise RejectedError(404, "not found")
    return api.process.crt_lists[params["name"]]


@route("GET", LISTS)
def _entries(api: Api, params: Params, body: bytes) -> Response:
    found = []
    for number, line in enumerate(_lines(api, params), 1):
        file, _, rest = line.partition(" ")
        options, _, filters = rest.removeprefix("[").rpartition("]") if "[" in rest else ("", "", rest)
        entry: dict[str, Any] = {"file": file, "line_number": number, "sni_filter": filters.split()}
        found.append({**entry, **({"ssl_bind_config": options} if options else {})})
    return JSONResponse(found)


@route("POST", LISTS)
def _add_entry(api: Api, params: Params, body: bytes) -> Response:
    reported = json.loads(body)
    if reported["file"] not in api.process.certificates:
        raise RejectedError(500, f"certificate '{reported['file']}' does not exist!")
    options = [f"[{reported['ssl_bind_config']}]"] if reported.get("ssl_bind_config") else []
    _lines(api, params).append(" ".join([reported["file"], *options, *reported.get("sni_filter", [])]))
    return Response(status_code=201)


@route("DELETE", LISTS)
def _delete_entry(api: Api, params: Params, body: bytes) -> Response:
    lines, name = _lines(api, params), params["cert_file"]
    found = [line for line in lines if line.split()[0] == name]
    if name not in api.process.certificates:
        raise RejectedError(404, f"Can't delete the entry: certificate '{name}' does not exist!")
    if len(found) != 1:
        raise RejectedError(500, "Can't delete the entry")
    lines.remove(found[0])
    return Response(status_code=204)


@route("GET", "stats/native")
def _stats(api: Api, params: Params, body: bytes) -> Response:
    rows: list[dict[str, Any]] = []
    if params.get("type") in {None, "backend"}:
        rows += [{"name": name, "type": "backend", "stats": {"status": "UP"}} for name in api.process.backends]
    for (backend, name), server in api.process.servers.items():
        is_meant = params.get("parent", backend) == backend and params.get("name", name) == name
        if is_meant and params.get("type") in {None, "server"}:
            rows.append({"backend_name": backend, "name": name, "type": "server", "stats": _figures(server)})
    return JSONResponse({"stats": rows})


def _figures(server: dict[str, Any]) -> dict[str, Any]:
    status = {"ready": "UP", "drain": "DRAIN", "maint": "MAINT"}[server.get("admin_state", "ready")]
    host = f"[{server['address']}]" if ":" in server["address"] else server["address"]
    addr = f"{host}:{server['port']}"
    return {"addr": addr, "weight": server["weight"], "status": server.get("status", status), "qcur": 0}
