"""Balancer of the cluster, in place of kube-proxy and a cloud: forwards the addresses of Services to endpoints.

Every Service with a cluster IP is served at this address. A Service of type LoadBalancer is also served at an
address of `LOAD_BALANCERS`, which the balancer writes to its status. As with kube-proxy, a new connection goes to a
ready endpoint, or, if none is ready, to a terminating endpoint that still serves; if there is none, the connection is
reset. If one endpoint refuses a connection, no other endpoint is tried.
"""

import itertools
import socket
from collections.abc import Iterable, Mapping
from functools import partial
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any, Final

import httpx
import msgspec
import trio

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.api import RETRY_INTERVAL, Api, ApiError, Mirror
from tests.cluster.node.netlink import Netlink
from tests.cluster.node.sandbox import BRIDGE
from tests.cluster.workloads.relay import relay

LOAD_BALANCERS: Final = IPv4Network("10.245.0.0/24")
CONNECT_LIMIT: Final = 3.0
"""Seconds that an endpoint may take to accept."""
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_FAMILY: Final = "IPv4"

Target = tuple[str, int]


class Listening(msgspec.Struct, frozen=True):
    """One address and port at which a Service is served."""

    address: str
    port: int
    port_name: str


class Balancer:
    """Serves the Services of the cluster; runs in the namespace of the bridge."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._services = Mirror(api, "/api/v1/services", self._service_changed)
        self._slices = Mirror(api, "/apis/discovery.k8s.io/v1/endpointslices", self._slice_changed)
        self._by_service: dict[tuple[str, str], dict[str, Resource]] = {}
        self._given: dict[tuple[str, str], IPv4Address] = {}
        self._scopes: dict[tuple[str, str], tuple[frozenset[Listening], trio.CancelScope]] = {}
        self._turn = itertools.count()
        self._held: dict[str, int] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started once every Service that exists is followed."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._slices.follow)
            await nursery.start(self._services.follow)
            task_status.started()

    def _slice_changed(self, before: Resource | None, after: Resource | None) -> None:
        for item in (before, after):
            if item is not None and (key := _service_of(item)) is not None:
                self._by_service.setdefault(key, {}).pop(item["metadata"]["name"], None)
        if after is not None and (key := _service_of(after)) is not None:
            self._by_service.setdefault(key, {})[after["metadata"]["name"]] = after

    def _service_changed(self, before: Resource | None, after: Resource | None) -> None:
        service = after or before
        assert service is not None
        key = service["metadata"]["namespace"], service["metadata"]["name"]
        wanted = frozenset[Listening]()
        if after is not None:
            extra = self._load_balancer_of(key, after)
            wanted = frozenset(listenings_of(after, extra))
        else:
            self._given.pop(key, None)
        current, scope = self._scopes.get(key, (frozenset(), None))
        if wanted == current:
            return
        if scope is not None:
            scope.cancel(reason="the Service changed")
        self._scopes.pop(key, None)
        if wanted:
            scope = trio.CancelScope()
            self._scopes[key] = wanted, scope
            self._nursery.start_soon(self._serve, key, wanted, scope)

    def _load_balancer_of(self, key: tuple[str, str], service: Resource) -> str | None:
        if service["spec"].get("type") != "LoadBalancer":
            self._given.pop(key, None)
            return None
        if key not in self._given:
            asked = service["spec"].get("loadBalancerIP")
            used = set(self._given.values())
            free = (one for one in LOAD_BALANCERS.hosts() if one not in used)
            self._given[key] = IPv4Address(asked) if asked else next(free)
        address = str(self._given[key])
        reported = (service.get("status") or {}).get("loadBalancer") or {}
        if [one.get("ip") for one in reported.get("ingress") or ()] != [address]:
            self._nursery.start_soon(self._report, key, address)
        return address

    async def _report(self, key: tuple[str, str], address: str) -> None:
        path = f"/api/v1/namespaces/{key[0]}/services/{key[1]}/status"
        change = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
        while True:
            try:
                await self._api.patch(path, change)
            except ApiError:
                return
            except httpx.TransportError:
                await trio.sleep(RETRY_INTERVAL)
            else:
                return

    async def _serve(self, key: tuple[str, str], wanted: Iterable[Listening], scope: trio.CancelScope) -> None:
        addresses = {one.address for one in wanted}
        with scope:
            for address in addresses:
                self._hold(address)
            try:
                async with trio.open_nursery() as nursery:
                    for one in wanted:
                        listener = trio.SocketListener(await _listen(one))
                        handler = partial(self._connect, key, one.port_name)
                        nursery.start_soon(
                            partial(trio.serve_listeners, handler, [listener], handler_nursery=self._nursery)
                        )
            finally:
                for address in addresses:
                    self._release(address)

    async def _connect(self, key: tuple[str, str], port_name: str, client: trio.SocketStream) -> None:
        targets = choose_targets(self._by_service.get(key, {}).values(), port_name)
        if targets:
            host, port = targets[next(self._turn) % len(targets)]
            try:
                with trio.fail_after(CONNECT_LIMIT):
                    endpoint = await trio.open_tcp_stream(host, port, happy_eyeballs_delay=CONNECT_LIMIT)
            except (OSError, trio.TooSlowError):
                pass
            else:
                await relay(client, endpoint)
                return
        # A reset, as a refused connection is: the client shall not take it for an empty answer.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await trio.aclose_forcefully(client)

    def _hold(self, address: str) -> None:
        self._held[address] = self._held.get(address, 0) + 1
        if self._held[address] == 1:
            with Netlink() as here:
                here.add_address(BRIDGE, IPv4Interface(f"{address}/32"))

    def _release(self, address: str) -> None:
        self._held[address] -= 1
        if not self._held[address]:
            del self._held[address]
            with Netlink() as here:
                here.remove_address(BRIDGE, IPv4Interface(f"{address}/32"))


def listenings_of(service: Resource, load_balancer: str | None) -> list[Listening]:
    """Return where *service* is served: TCP ports at its cluster IP and at *load_balancer*."""
    spec = service["spec"]
    cluster = spec.get("clusterIP")
    addresses = [one for one in (cluster, load_balancer) if one and one != "None" and ":" not in one]
    ports = [one for one in spec.get("ports") or () if one.get("protocol", "TCP") == "TCP"]
    return [Listening(address, one["port"], one.get("name", "")) for address in addresses for one in ports]


def choose_targets(slices: Iterable[Resource], port_name: str) -> list[Target]:
    """Return the endpoints that may get a new connection: the ready ones, or those that still serve."""
    ready: list[Target] = []
    serving: list[Target] = []
    for one in slices:
        if one.get("addressType") != _FAMILY:
            continue
        ports = [
            port["port"]
            for port in one.get("ports") or ()
            if (port.get("name") or "") == port_name and port.get("port")
        ]
        for endpoint in one.get("endpoints") or ():
            conditions: Mapping[str, Any] = endpoint.get("conditions") or {}
            targets = [(endpoint["addresses"][0], port) for port in ports]
            if conditions.get("ready", True):
                ready += targets
            elif conditions.get("serving") and conditions.get("terminating"):
                serving += targets
    return sorted(set(ready or serving))


async def _listen(place: Listening) -> trio.socket.SocketType:
    listener = trio.socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    await listener.bind((place.address, place.port))
    listener.listen(1024)
    return listener


def _service_of(item: Resource) -> tuple[str, str] | None:
    name = (item["metadata"].get("labels") or {}).get(_SERVICE_LABEL)
    return (item["metadata"]["namespace"], name) if name else None
