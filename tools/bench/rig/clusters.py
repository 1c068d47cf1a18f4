"""Clusters of the benchmark: a directory of manifests, or the API server of a kubeconfig.

All of this blocks: the bench is one thread that writes and asks, so that
nothing of its own comes between the two.
"""

import http.client
import json
import secrets
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from threading import local
from typing import Protocol
from urllib.parse import urlsplit

import trio

from haptic_trio.errors import HapticError
from haptic_trio.k8s.api.auth import Credentials, load_kubeconfig
from haptic_trio.k8s.kinds import plural_of
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from tools.bench.rig.objects import CONFIG_NAME, Place, app_name, split_docs

ANSWER_LIMIT = 30.0
WRITERS = 4
"""Connections on which the first objects are created."""

Write = Callable[[], None]


class WriteRejectedError(HapticError):
    """The API server did not take an object; the message says why. Trying again helps if it was overloaded."""


class Cluster(Protocol):
    """A cluster that is ready to be filled."""

    place: Place

    def arguments(self) -> list[str]:
        """Return how `haptic-trio serve` finds it."""
        ...

    def load(self, apps: Sequence[Sequence[Resource]]) -> None:
        """Create objects, each app's together, in no particular time."""
        ...

    def prepare(self, resource: Resource, *, exists: bool) -> Write:
        """Return what writes *resource* at a stroke; all work that is not the write itself is done here."""
        ...

    def remove(self, ref: ResourceRef) -> None:
        """Delete an object."""
        ...


class Column(Protocol):
    """A kind of cluster that is measured."""

    name: str

    def open(self, place: Place, scratch: Path) -> AbstractContextManager[Cluster]:
        """Return an empty cluster for the duration of a block; *place* says nothing of namespace and address yet."""
        ...


class Directory:
    """A directory as the cluster: one file for each app; what comes later has a file of its own."""

    def __init__(self, place: Place, root: Path) -> None:
        self.place = place
        self._root = root
        self._files: dict[ResourceRef, str] = {}
        self._objects: dict[str, dict[ResourceRef, Resource]] = {}

    def arguments(self) -> list[str]:
        """Return how `haptic-trio serve` finds it."""
        return ["--manifests", str(self._root), "--namespace", self.place.namespace]

    def load(self, apps: Sequence[Sequence[Resource]]) -> None:
        """Write a file for each app."""
        for number, objects in enumerate(apps):
            name = f"{app_name(number)}.yaml"
            self._objects[name] = {ref_of(each): each for each in objects}
            self._files |= dict.fromkeys(self._objects[name], name)
            (self._root / name).write_text(split_docs(objects))

    def prepare(self, resource: Resource, *, exists: bool) -> Write:  # noqa: ARG002  a file is replaced or new alike
        """Return what replaces the file in which *resource* is."""
        ref = ref_of(resource)
        name = self._files.setdefault(ref, f"{ref.kind}-{ref.name}.yaml".lower())
        held = self._objects.setdefault(name, {})
        held[ref] = resource
        return partial(self._replace, name, split_docs(list(held.values())))

    def remove(self, ref: ResourceRef) -> None:
        """Delete an object, and its file when nothing else is in it."""
        name = self._files.pop(ref)
        held = self._objects[name]
        del held[ref]
        if held:
            self._replace(name, split_docs(list(held.values())))
        else:
            (self._root / name).unlink()

    def _replace(self, name: str, text: str) -> None:
        draft = self._root / f".{name}.new"
        draft.write_text(text)
        draft.replace(self._root / name)


class DirectoryColumn:
    """A directory as the cluster."""

    name = "directory"

    @contextmanager
    def open(self, place: Place, scratch: Path) -> Iterator[Directory]:
        """Return an empty one."""
        root = scratch / "manifests"
        root.mkdir()
        yield Directory(place, root)


class ApiServer:
    """A namespace of an API server as the cluster; one connection for each thread that writes."""

    def __init__(self, place: Place, kubeconfig: Path, context: str | None, credentials: Credentials) -> None:
        self.place = place
        self.config_map = CONFIG_NAME
        self._kubeconfig = kubeconfig
        self._context = context
        self._credentials = credentials
        self._mine = local()

    def arguments(self) -> list[str]:
        """Return how `haptic-trio serve` finds it."""
        context = ["--context", self._context] if self._context else []
        return ["--kubeconfig", str(self._kubeconfig), *context, "--namespace", self.place.namespace]

    def load(self, apps: Sequence[Sequence[Resource]]) -> None:
        """Create all objects, on several connections."""
        with ThreadPoolExecutor(WRITERS) as writers:
            for _done in writers.map(self._create_all, apps):
                pass

    def prepare(self, resource: Resource, *, exists: bool) -> Write:
        """Return what sends *resource*."""
        collection = collection_path(resource, self.place.namespace)
        body = json.dumps(resource).encode()
        # The connection is opened ahead: it is not part of the write.
        self._connection()
        if exists:
            return partial(self.send, "PUT", f"{collection}/{resource['metadata']['name']}", body)
        return partial(self.send, "POST", collection, body)

    def remove(self, ref: ResourceRef) -> None:
        """Delete an object."""
        groups = {"Ingress": "networking.k8s.io/v1", "EndpointSlice": "discovery.k8s.io/v1"}
        kind = {"apiVersion": groups.get(ref.kind, "v1"), "kind": ref.kind}
        self.send("DELETE", f"{collection_path(kind, ref.namespace)}/{ref.name}", b"")

    def send(self, method: str, path: str, body: bytes) -> None:
        """Send a request, and have the answer; raises WriteRejectedError."""
        headers = {"Content-Type": "application/json"}
        if self._credentials.token:
            headers["Authorization"] = f"Bearer {self._credentials.token}"
        for attempt in range(2):
            connection = self._connection()
            try:
                connection.request(method, path, body or None, headers)
                answer = connection.getresponse()
                text = answer.read()
            except (http.client.HTTPException, OSError) as exc:
                connection.close()
                self._mine.connection = None
                # A server may close an idle connection at any time; it has then not seen the request.
                if attempt:
                    raise WriteRejectedError(f"{method} {path}: {exc!r}") from exc
                continue
            if answer.status >= 300:
                raise WriteRejectedError(f"{method} {path}: {answer.status} {text[:300].decode(errors='replace')}")
            return

    def _create_all(self, objects: Sequence[Resource]) -> None:
        for each in objects:
            self.prepare(each, exists=False)()

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._mine, "connection", None)
        if connection is None:
            url = urlsplit(self._credentials.server)
            connection = _NamedConnection(
                url.hostname or "",
                url.port or 443,
                context=self._credentials.context,
                server_name=self._credentials.server_name,
            )
            connection.connect()
            self._mine.connection = connection
        return connection


class _NamedConnection(http.client.HTTPSConnection):
    """A connection to a server whose certificate may have another name than its address."""

    def __init__(self, host: str, port: int, *, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(host, port, context=context, timeout=ANSWER_LIMIT)
        self._secure = context
        self._server_name = server_name or host

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), ANSWER_LIMIT)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = self._secure.wrap_socket(plain, server_hostname=self._server_name)


class KubeconfigColumn:
    """The API server of a kubeconfig, in a namespace that is created and deleted.

    *address* is where the backends listen; by default that which this
    machine has towards the API server: a real one rejects endpoints on the
    loopback interface.
    """

    name = "api"

    def __init__(self, kubeconfig: Path, *, context: str | None = None, address: str | None = None) -> None:
        self._kubeconfig = kubeconfig.absolute()
        self._context = context
        self._address = address

    @contextmanager
    def open(self, place: Place, scratch: Path) -> Iterator[ApiServer]:  # noqa: ARG002  nothing is on disk
        """Return an empty namespace."""
        credentials = trio.run(load_kubeconfig, self._kubeconfig, self._context)
        namespace = f"haptic-trio-bench-{secrets.token_hex(3)}"
        url = urlsplit(credentials.server)
        own = Place(
            namespace=namespace,
            is_shared=True,
            ingress_class=namespace,
            address=self._address or find_own_address(url.hostname or "", url.port or 443),
            http_port=place.http_port,
            https_port=place.https_port,
        )
        server = ApiServer(own, self._kubeconfig, self._context, credentials)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        server.send("POST", "/api/v1/namespaces", json.dumps(body).encode())
        try:
            yield server
        finally:
            server.send("DELETE", f"/api/v1/namespaces/{namespace}", b"")


def collection_path(resource: Resource, namespace: str) -> str:
    """Return the path of the collection that *resource* belongs to."""
    version = resource["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural_of(resource['kind'])}"


def find_own_address(host: str, port: int) -> str:
    """Return the address that this machine has towards *host*."""
    family, kind, protocol, _name, address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Of a datagram socket this sends nothing.
        probe.connect(address)
        return str(probe.getsockname()[0])
