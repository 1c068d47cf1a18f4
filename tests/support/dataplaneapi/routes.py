"""The requests that the Data Plane API of the tests knows, and what each does to its state."""

import re
import uuid
from collections.abc import Callable
from typing import Any

import trio
from starlette.responses import JSONResponse, Response

from tests.support.dataplaneapi.state import (
    DESCRIPTIONS,
    DIRECTORIES,
    ROOT,
    Process,
    RejectedError,
    checksum,
    clean_name,
    describe_certificate,
    load,
    reject_faults,
    rewrite,
    with_header,
)

Handler = Callable[..., Response]
Params = dict[str, str]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []
LOADED = (
    "[NOTICE]   (29261) : New worker (29311) forked\n[NOTICE]   (29261) : Loading success.\n"
    "[WARNING]  (29261) : Former worker (29264) exited with code 0 (Exit)"
)


class Api:
    """The state of the API, and knobs for what goes wrong."""

    def __init__(self, text: str) -> None:
        self.version = 1
        self.text = text
        self.is_rewritten = False
        """A configuration that was not pushed yet is as its author wrote it."""
        self.stores: dict[str, dict[str, bytes]] = {store: {} for store in DIRECTORIES}
        self.api_version = " dev.dirty"
        self.haproxy_version = "2.8.25-5cf5d0683"
        self.reload_delay = 5.0
        """Seconds between the request for a scheduled reload and the reload."""
        self.reload_failures: list[str] = []
        """What HAProxy says at the next reloads, which fail."""
        self.knows_weights = True
        """Whether the runtime server takes a weight; an API that does not ignores it."""
        self.knows_certificates = True
        """Whether certificates of the process can be seen and changed."""
        self.takes_certificates = True
        """Whether a certificate that is stored is given to the process; one that is not is left to a reload."""
        self.process = Process()
        self.pid = 29264
        """Of the worker; another one after each reload."""
        self.kept: dict[str, bytes] = {}
        """For tests to put something aside."""
        self.loads = 0
        self.day = "2026-11-21"
        self._good = (text, self.version)
        self._reloads: dict[str, dict[str, Any]] = {}
        self._pending: tuple[str, float] | None = None
        self._index = 0
        self.transactions: dict[str, dict[str, Any]] = {}
        self.boot()

    def boot(self) -> None:
        """Start HAProxy afresh with what is stored."""
        self.process = load(self.text, self.stores)

    def raw(self) -> str:
        """Return the configuration as it is read."""
        return with_header(self.text, self.version) if self.is_rewritten else self.text

    def check_version(self, params: Params) -> None:
        given = int(params.get("version", "0"))
        if given != self.version:
            message = f"version in configuration file is {self.version}, given version is {given}"
            raise RejectedError(409, f"version mismatch: {message}")

    def replace(self, text: str) -> None:
        """Store a new configuration."""
        self.text, self.version, self.is_rewritten = rewrite(text), self.version + 1, True

    def reload(self) -> str | None:
        """Reload now; return what HAProxy says when it fails."""
        if self.reload_failures:
            # The API turns the configuration back to the one that was loaded last.
            self.text, self.version = self._good
            return self.reload_failures.pop(0)
        self.boot()
        self.pid += 1
        self.loads += 1
        self._good = (self.text, self.version)
        return None

    def schedule(self) -> str:
        """Return the id of a reload to come; requests until then share it."""
        if self._pending is None:
            self._pending = (f"{self.day}-{self._index}", trio.current_time() + self.reload_delay)
            self._index += 1
        reload_id = self._pending[0]
        self.settle()
        return reload_id

    def settle(self, *, now: bool = False) -> str | None:
        """Do the scheduled reload if its time has come."""
        if self._pending is None or (not now and trio.current_time() < self._pending[1]):
            return None
        reload_id, self._pending = self._pending[0], None
        output = self.reload()
        status = "failed" if output else "succeeded"
        self._reloads[reload_id] = {
            "id": reload_id,
            "status": status,
            "response": output or LOADED,
            "reload_timestamp": 1795242511,
        }
        return output

    def list_reloads(self) -> list[dict[str, Any]]:
        self.settle()
        pending = [{"id": self._pending[0], "status": "in_progress"}] if self._pending else []
        return [*self._reloads.values(), *pending]

    def force(self) -> None:
        """Reload now, together with what is scheduled; raises RejectedError when it fails."""
        output = self.settle(now=True) if self._pending else self.reload()
        if output:
            raise RejectedError(400, f"Reload failed: exit status 1, {output}")


def route(method: str, path: str) -> Callable[[Handler], Handler]:
    """Register a handler for *method* and *path*."""
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))

    def register(handler: Handler) -> Handler:
        ROUTES.append((method, pattern, handler))
        return handler

    return register


@route("GET", "/info")
def _info(api: Api, params: Params, body: bytes) -> Response:
    return JSONResponse({"api": {"build_date": "0001-01-01T00:00:00.000Z", "version": api.api_version}, "system": {}})


@route("GET", "configuration/version")
def _version(api: Api, params: Params, body: bytes) -> Response:
    return JSONResponse(api.version)


@route("GET", "configuration/raw")
def _raw(api: Api, params: Params, body: bytes) -> Response:
    return _text(api, 200)


@route("POST", "configuration/raw")
def _push(api: Api, params: Params, body: bytes) -> Response:
    text = body.decode(errors="surrogateescape")
    if params.get("only_validate") == "true":
        reject_faults(text, f"{ROOT}/tmp/x")
        return _text(api, 202)
    api.check_version(params)
    transaction = str(uuid.uuid4())
    try:
        reject_faults(
            "\n\n\n" + rewrite(text), f"{ROOT}/tx/haproxy.cfg.{transaction}", f"err transactionId={transaction} \n"
        )
    except RejectedError:
        api.transactions[transaction] = {"id": transaction, "status": "failed"}
        raise
    api.replace(text)
    if params.get("skip_reload") == "true":
        return _text(api, 201)
    if params.get("force_reload") == "true":
        stored = _text(api, 201)
        api.force()
        return stored
    stored = _text(api, 202)
    stored.headers["Reload-ID"] = api.schedule()
    return stored


def _text(api: Api, status: int) -> Response:
    headers = {"Configuration-Checksum": checksum(api.text)} if api.is_rewritten else {}
    return Response(api.raw().encode(errors="surrogateescape"), status, headers, "text/plain")


@route("GET", "reloads")
def _reloads(api: Api, params: Params, body: bytes) -> Response:
    return JSONResponse(api.list_reloads())


@route("GET", "reloads/{name}")
def _reload(api: Api, params: Params, body: bytes, name: str) -> Response:
    found = next((reload for reload in api.list_reloads() if reload["id"] == name), None)
    if found is None:
        raise RejectedError(404, f"reload {name} not found")
    return JSONResponse(found)


@route("GET", "storage/{store}")
def _stored(api: Api, params: Params, body: bytes, store: str) -> Response:
    names = sorted(_store(api, store))
    if store == "ssl_crt_lists":
        # In a shared directory it identifies them by their names.
        names = [name for name in names if name.endswith(".txt")]
    return JSONResponse([_describe(store, name) for name in names])


@route("POST", "storage/{store}")
def _create(api: Api, params: Params, body: tuple[str, bytes], store: str) -> Response:
    name, content = clean_name(store, body[0]), body[1]
    path = f"{ROOT}/{DIRECTORIES[store]}/{name}"
    if name in _store(api, store):
        raise RejectedError(409, f"object already exists: file {path} already exists")
    described = {**_describe(store, name), "size": len(content)}
    if store == "ssl_certificates":
        described.update(describe_certificate(content))
    if store == "maps":
        described["description"] = "managed but not loaded map file (no runtime ID)"
    api.stores[store][name] = content
    if store == "ssl_certificates" and "skip_reload" not in params:
        if not api.takes_certificates:
            return JSONResponse(described, 202, {"Reload-ID": api.schedule()})
        api.process.certificates[path] = content
    if store == "ssl_crt_lists":
        # To create a crt-list takes no skip_reload.
        return _after_write(api, {}, JSONResponse(described, 201), accepted=JSONResponse(described, 202))
    return JSONResponse(described, 201)


@route("GET", "storage/{store}/{name}")
def _stored_file(api: Api, params: Params, body: bytes, store: str, name: str) -> Response:
    content = _find_file(api, store, name)
    if store == "ssl_certificates":
        return JSONResponse({**_describe(store, name), "size": len(content), **describe_certificate(content)})
    return Response(content, media_type="application/octet-stream")


@route("PUT", "storage/{store}/{name}")
def _replace_file(api: Api, params: Params, body: bytes | tuple[str, bytes], store: str, name: str) -> Response:
    _find_file(api, store, name)
    if body == b"":
        raise RejectedError(422, "data in body is required")
    content = body[1] if isinstance(body, tuple) else body
    described = {**_describe(store, name), "size": len(content)}
    if store == "ssl_certificates":
        described.update(describe_certificate(content))
    api.stores[store][name] = content
    done = JSONResponse(described) if store.startswith("ssl") else Response(status_code=204)
    return _after_write(api, params, done, accepted=Response(status_code=202))


@route("DELETE", "storage/{store}/{name}")
def _delete_file(api: Api, params: Params, body: bytes, store: str, name: str) -> Response:
    _find_file(api, store, name)
    path = f"{ROOT}/{DIRECTORIES[store]}/{name}"
    if path in api.text:
        raise RejectedError(409, f"rejecting attempt to delete file {path} referenced in haproxy conf")
    del api.stores[store][name]
    if store in {"maps", "general"}:
        return Response(status_code=204)
    return _after_write(api, params, Response(status_code=204), accepted=Response(status_code=202))


def _after_write(api: Api, params: Params, done: Response, *, accepted: Response) -> Response:
    if params.get("skip_reload") == "true":
        return done
    if params.get("force_reload") == "true":
        api.force()
        return done
    accepted.headers["Reload-ID"] = api.schedule()
    return accepted


def _store(api: Api, store: str) -> dict[str, bytes]:
    if store not in api.stores:
        raise RejectedError(404, f"path storage/{store} was not found")
    return api.stores[store]


def _find_file(api: Api, store: str, name: str) -> bytes:
    if name not in _store(api, store):
        place = f"{ROOT}/{DIRECTORIES[store]}"
        raise RejectedError(404, f"missing object: file {name} doesn't exist in dir: {place}")
    return api.stores[store][name]


def _describe(store: str, name: str) -> dict[str, Any]:
    file = f"{ROOT}/{DIRECTORIES[store]}/{name}"
    return {"description": DESCRIPTIONS[store], "file": file, "storage_name": name}
