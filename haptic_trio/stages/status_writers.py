"""Writers of object status, Kubernetes Events and the published configuration, run during a leadership term."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NoReturn

import trio

from haptic_trio.channels import AnyChange, Channels, Latest
from haptic_trio.config.model import Config
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.console.configuration import Source, site_for
from haptic_trio.console.redaction import Redactor
from haptic_trio.errors import Problem
from haptic_trio.explain.site import Site, take_excerpt
from haptic_trio.gateway.extensions import allowed_filters
from haptic_trio.gateway.features import FEATURES, WITH_SERVICES
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS
from haptic_trio.haproxy.model import FileKind, Generation
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.k8s.store import Stores
from haptic_trio.messages import ProblemsReported
from haptic_trio.pipeline.render import Rendered
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
from haptic_trio.status.gateway_versions import follow_versions
from haptic_trio.status.ingress import Addresses, IngressClaim, IngressStatus
from haptic_trio.status.node_addresses import follow_nodes
from haptic_trio.status.object_events import EventWriter
from haptic_trio.status.published import MOST_BYTES, MOST_FILES, MOST_OMITTED, PublishedText, Snapshot, in_order
from haptic_trio.status.publisher import INTERVAL, Inputs, Publisher
from haptic_trio.status.sources import StatusSource
from haptic_trio.status.writer import StatusWriter, follow_service
from haptic_trio.templating.incremental.provenance import Provenance

VERDICT_LIMIT: Final = 60.0
"""Seconds after which statuses are written although no configuration of the iteration has been checked yet."""
DEPLOYMENT_LIMIT: Final = 5.0
"""Seconds after the first valid configuration that statuses wait for its deployment; there may be no instance."""


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
    versions: Latest[Mapping[str, str]] = Latest()
    changes = AnyChange((addresses, versions))
    sources = make_sources(components.config, components.stores, addresses if has_addresses(access) else None, versions)
    writer = StatusWriter(access.server, components.stores, sources, metrics=process.queue_metrics)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.run, channels.validated, channels.rejected)
        cells = channels.prepared, channels.validated, channels.rejected
        nursery.start_soon(_run_after_deployment, writer, channels)
        if _has_gateway_services(components.config, components.stores):
            services = GatewayServices(
                access.server,
                components.stores,
                str(components.config.templating.extra_context.get("gatewayController", "")),
                report=partial(_report_service, process),
                metrics=process.queue_metrics,
            )
            nursery.start_soon(services.run, cells)
        if components.config.controller.publish_configuration:
            nursery.start_soon(_make_publisher(access, process, components, channels).run)
        if access.addresses:
            addresses.put(Addresses(access.addresses))
        elif access.service is not None:
            nursery.start_soon(follow_service, access.server, *access.service, addresses)
        elif access.nodes:
            labels = components.config.pod_selector.match_labels
            nursery.start_soon(follow_nodes, access.server, process.source.namespace, labels, access.nodes, addresses)
        if "gateway" in components.config.templating.libraries:
            nursery.start_soon(follow_versions, access.server, versions)
        while True:
            await changes.wait()
            writer.compare_again(*(source.name for source in sources))
    raise AssertionError("the tasks run until cancelled")


async def _run_after_deployment(writer: StatusWriter, channels: Channels) -> NoReturn:
    await wait_for_deployment(channels)
    await writer.run((channels.prepared, channels.validated, channels.rejected), channels.unread)


async def wait_for_deployment(channels: Channels) -> None:
    """Return when the first configuration of the iteration is deployed or rejected, or after the limits above.

    Traffic waits for the first render and its deployment; statuses of many routes would take their time.
    """
    validated, rejected, completed = channels.validated, channels.rejected, channels.completed
    checked, deployed = AnyChange((validated, rejected)), AnyChange((completed, rejected))
    if not (validated.version or rejected.version):
        with trio.move_on_after(VERDICT_LIMIT):
            await checked.wait()
    if validated.version and not (rejected.version or completed.version):
        with trio.move_on_after(DEPLOYMENT_LIMIT):
            await deployed.wait()


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


def make_sources(
    config: Config,
    stores: Stores,
    addresses: Latest[Addresses] | None,
    versions: Latest[Mapping[str, str]] | None = None,
) -> list[StatusSource]:
    """Return the status sources of the enabled libraries of *config*.

    *addresses* is None if the addresses of HAProxy are not configured;
    *versions* are those of the definitions of the Gateway API, by name.
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
    return sources + _gateway_sources(config, stores, addresses, versions or Latest())


def _gateway_sources(
    config: Config, stores: Stores, addresses: Latest[Addresses] | None, versions: Latest[Mapping[str, str]]
) -> list[StatusSource]:
    libraries = config.templating.libraries
    if "gateway" not in libraries or not stores.keys() >= GATEWAY_STORES:
        return []
    context = config.templating.extra_context
    controller, rules = str(context.get("gatewayController", "")), PortRules.of_settings(context)
    filters = allowed_filters(context)
    extra = WITH_SERVICES if _has_gateway_services(config, stores) else frozenset[str]()

    def known() -> tuple[str, ...] | None:
        if addresses is None:
            return ()
        return addresses.value.entries if addresses.value is not None else None

    return [
        GatewayClassStatus(stores, controller, features=FEATURES | extra, versions=lambda: versions.value or {}),
        GatewayStatus(stores, controller, rules, known),
        ListenerSetStatus(stores, controller, rules),
        PolicyStatus(stores, controller),
        *(RouteStatus(stores, controller, kind=kind, filters=filters) for kind in ROUTE_KINDS.values()),
    ]


def _make_publisher(
    access: StatusAccess, process: Process, components: IterationComponents, channels: Channels
) -> Publisher:
    """Return the writer of the published configuration, named like the ConfigMap and beside it."""

    def report(problems: tuple[Problem, ...]) -> None:
        process.events.record(ProblemsReported(source="published configuration", problems=problems))

    return Publisher(
        access.server,
        process.source.namespace,
        process.source.config_map,
        Inputs(channels.prepared, channels.validated, channels.instances, channels.endpoints),
        partial(_read, components),
        clean=make_redactor(process).clean,
        report=report,
        interval=INTERVAL,
    )


def make_redactor(process: Process) -> Redactor:
    """Return a redactor that knows the Secrets and the credentials of *process*."""

    def stores() -> Stores | None:
        state = process.running.value
        return state.components.stores if state is not None and state.components is not None else None

    def credentials() -> tuple[str, ...]:
        state = process.running.value
        loaded = state.loaded if state is not None else None
        return (loaded.credentials.dataplane_password,) if loaded is not None and loaded.credentials is not None else ()

    return Redactor(stores, credentials)


async def _read(components: IterationComponents, generations: tuple[Generation, ...]) -> Snapshot | None:
    """Return the text of the newest render if it is that of one of *generations*, else None."""
    return await components.pipeline.consult(partial(_take_snapshot, components, generations))


def _take_snapshot(
    components: IterationComponents, generations: tuple[Generation, ...], rendered: Rendered, provenance: Provenance
) -> Snapshot | None:
    generation = next((one for one in generations if _is_of(rendered, one)), None)
    if generation is None:
        return None
    source = Source(config=components.config, stores=components.stores, pipeline=components.pipeline)
    site = site_for(source, rendered, provenance)
    maps = (path for path, file in site.files.items() if file.kind is FileKind.MAP)
    paths = [MAIN_TEMPLATE, *in_order(maps, {output.path for output in template_set(components.config).outputs})]
    return Snapshot(
        generation=generation.id,
        texts=tuple(_take_text(site, path) for path in paths[:MOST_FILES]),
        omitted=tuple(paths[MOST_FILES : MOST_FILES + MOST_OMITTED]),
    )


def _take_text(site: Site, path: str) -> PublishedText:
    excerpt = take_excerpt(site, path, MOST_BYTES)
    return PublishedText(
        path=path,
        kind="configuration" if path == MAIN_TEMPLATE else "map",
        text=excerpt.text,
        bytes=excerpt.bytes,
        first_omitted=excerpt.first_omitted,
        hidden_lines=excerpt.hidden_lines,
    )


def _is_of(rendered: Rendered, generation: Generation) -> bool:
    """Whether *rendered* is what *generation* was made from."""
    if rendered.files.seal != generation.files.seal:
        return False
    # A comparison of texts costs milliseconds, and to parse a text again costs seconds if there are very many routes.
    return "".join([piece.text for piece in rendered.config.pieces]) == generation.text
