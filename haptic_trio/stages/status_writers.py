"""Writers of object status and Kubernetes Events, run during a leadership term."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NoReturn

import trio

from haptic_trio.channels import Channels, Latest
from haptic_trio.config.model import Config
from haptic_trio.errors import Problem
from haptic_trio.gateway.features import FEATURES, WITH_SERVICES
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.k8s.store import Stores
from haptic_trio.messages import ProblemsReported
from haptic_trio.stages.iteration_components import IterationComponents
from haptic_trio.stages.process import Process, StatusAccess
from haptic_trio.status.gateway import (
    STORES as GATEWAY_STORES,
)
from haptic_trio.status.gateway import (
    GatewayClassStatus,
    GatewayStatus,
    ListenerSetStatus,
    PolicyStatus,
    RouteStatus,
)
from haptic_trio.status.gateway_services import INPUTS as GATEWAY_SERVICE_INPUTS
from haptic_trio.status.gateway_services import GatewayServices
from haptic_trio.status.ingress import Addresses, IngressClaim, IngressStatus
from haptic_trio.status.node_addresses import follow_nodes
from haptic_trio.status.object_events import EventWriter
from haptic_trio.status.sources import StatusSource
from haptic_trio.status.writer import StatusWriter, follow_service


async def lead_and_write_status(
    lead: Callable[[], Awaitable[None]], process: Process, components: IterationComponents, channels: Channels
) -> None:
    """Run *lead* and, if there is an API server, the writers of status and Kubernetes Events, until cancelled."""
    access = process.status_access
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lead)
        if access is not None:
            nursery.start_soon(_write_status, access, process, components, channels)


async def _write_status(
    access: StatusAccess, process: Process, components: IterationComponents, channels: Channels
) -> NoReturn:
    addresses: Latest[Addresses] = Latest()
    events = EventWriter(
        access.server,
        components.stores,
        quarantined=lambda: process.retained.quarantine.objects,
        warnings=lambda: process.retained.quarantine.warnings,
        configuration=process.candidates,
        invalid=process.invalid,
        instance=access.instance,
        metrics=process.queue_metrics,
    )
    sources = make_sources(components.config, components.stores, addresses if has_addresses(access) else None)
    writer = StatusWriter(access.server, components.stores, sources, metrics=process.queue_metrics)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.run, channels.validated, channels.rejected)
        cells = channels.prepared, channels.validated, channels.rejected
        nursery.start_soon(writer.run, cells, channels.unread)
        if _has_gateway_services(components.config, components.stores):
            services = GatewayServices(
                access.server,
                components.stores,
                str(components.config.templating.extra_context.get("gatewayController", "")),
                report=partial(_report_service, process),
                metrics=process.queue_metrics,
            )
            nursery.start_soon(services.run, cells)
        if access.addresses:
            addresses.put(Addresses(access.addresses))
        elif access.service is not None:
            nursery.start_soon(follow_service, access.server, *access.service, addresses)
        elif access.nodes:
            labels = components.config.pod_selector.match_labels
            nursery.start_soon(follow_nodes, access.server, process.source.namespace, labels, access.nodes, addresses)
        seen = 0
        while True:
            seen, _ = await addresses.wait_newer(seen)
            writer.compare_again(*(source.name for source in sources))
    raise AssertionError("the tasks run until cancelled")


def _has_gateway_services(config: Config, stores: Stores) -> bool:
    """Whether each Gateway gets a Service."""
    templating = config.templating
    is_asked_for = "gateway" in templating.libraries and templating.extra_context.get("gatewayServices") is True
    return is_asked_for and stores.keys() >= set(GATEWAY_SERVICE_INPUTS)


def _report_service(process: Process, ref: ResourceRef, problem: str) -> None:
    process.events.record(ProblemsReported(source=f"Service of {ref}", problems=(Problem(message=problem),)))


def has_addresses(access: StatusAccess) -> bool:
    """Whether the addresses of HAProxy are configured; if not, addresses in status are neither written nor removed."""
    return bool(access.addresses or access.nodes) or access.service is not None


def make_sources(config: Config, stores: Stores, addresses: Latest[Addresses] | None) -> list[StatusSource]:
    """Return the status sources of the enabled libraries of *config*.

    *addresses* is None if the addresses of HAProxy are not configured.
    """
    sources: list[StatusSource] = []
    is_served = "ingress" in config.templating.libraries and {"ingresses", "ingressClasses"} <= stores.keys()
    if addresses is not None and is_served:
        context = config.templating.extra_context
        claim = IngressClaim(
            class_name=str(context.get("ingressClass", "")),
            controller=str(context.get("ingressController", "")),
            without_class=bool(context.get("watchIngressWithoutClass")),
        )
        sources.append(
            IngressStatus(
                claim,
                store="ingresses",
                class_store="ingressClasses",
                classes=stores["ingressClasses"].list,
                addresses=lambda: addresses.value,
            )
        )
    return sources + _gateway_sources(config, stores, addresses)


def _gateway_sources(config: Config, stores: Stores, addresses: Latest[Addresses] | None) -> list[StatusSource]:
    libraries = config.templating.libraries
    if "gateway" not in libraries or not stores.keys() >= GATEWAY_STORES:
        return []
    context = config.templating.extra_context
    controller, rules = str(context.get("gatewayController", "")), PortRules.of_settings(context)
    extra = WITH_SERVICES if _has_gateway_services(config, stores) else frozenset[str]()

    def known() -> tuple[str, ...] | None:
        if addresses is None:
            return ()
        return addresses.value.entries if addresses.value is not None else None

    return [
        GatewayClassStatus(stores, controller, features=FEATURES | extra),
        GatewayStatus(stores, controller, rules, known),
        ListenerSetStatus(stores, controller, rules),
        PolicyStatus(stores, controller),
        *(RouteStatus(stores, controller, kind=kind) for kind in ROUTE_KINDS.values()),
    ]
