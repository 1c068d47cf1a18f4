"""Load functions of `serve`, with the checks that depend on the kind of endpoints."""

from collections.abc import Iterable
from functools import partial

import msgspec

from haptic_trio.cli.serving.endpoints import AgentList, ApiList, PodMode
from haptic_trio.config.load import Load, LoadedConfig, load_config
from haptic_trio.config.model import DataplaneKind
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.dataplane.dataplaneapi.client import Credentials
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource


def choose_load(agents: AgentList | None, apis: ApiList | None, pods: PodMode | None) -> Load:
    """Return the load function for the given kind of endpoints; if all are None, for local instances."""
    if pods is not None:
        return load_for_pods if pods.access is not None else load_for_api_pods
    if apis is not None:
        return partial(load_for_apis, environment=apis.credentials)
    return load_for_local_instances if agents is None else load_for_agents


def reserving(load: Load, agents: AgentList | None, listens: Iterable[str | None]) -> Load:
    """Return *load* with more ports in `gatewayReservedPorts`, which no listener of a Gateway may use.

    For local instances these are the ports of *listens*, else those of agents and Data Plane APIs.
    """
    own = {_port_of(listen) for listen in listens if listen is not None}
    theirs = {address.port for address in agents.addresses} if agents is not None else set()

    def load_and_reserve(config_map: Resource, secret: Resource | None) -> LoadedConfig:
        loaded = load(config_map, secret)
        config = loaded.config
        context = config.templating.extra_context
        if "gatewayReservedPorts" not in context:
            return loaded
        is_local = config.dataplane.kind is DataplaneKind.LOCAL and agents is None
        added = own if is_local else {config.dataplane.port, *theirs}
        reserved = sorted({*context["gatewayReservedPorts"], *added} - {0})
        templating = msgspec.structs.replace(
            config.templating, extra_context={**context, "gatewayReservedPorts": reserved}
        )
        return msgspec.structs.replace(loaded, config=msgspec.structs.replace(config, templating=templating))

    return load_and_reserve


def _port_of(listen: str) -> int:
    return int(listen.rpartition(":")[2])


def load_for_local_instances(config_map: Resource, secret: Resource | None) -> LoadedConfig:
    """Load a configuration for HAProxy processes of this machine; see `load_config`."""
    return _load_for(config_map, secret, (DataplaneKind.LOCAL,))


def load_for_agents(config_map: Resource, secret: Resource | None) -> LoadedConfig:
    """Load a configuration for a list of agents."""
    # `local` is the default of the setting.
    return _load_for(config_map, secret, (DataplaneKind.AGENT, DataplaneKind.LOCAL))


def load_for_apis(
    config_map: Resource, secret: Resource | None, *, environment: Credentials | None = None
) -> LoadedConfig:
    """Load a configuration for a list of Data Plane APIs; the *environment* overrides the Secret's credentials."""
    if environment is not None:
        values = {"dataplane_username": environment.username, "dataplane_password": environment.password}
        # Keep the version, so that a change of the Secret is noticed.
        secret = {"metadata": (secret or {}).get("metadata") or {}, "stringData": values}
    loaded = _load_for(config_map, secret, (DataplaneKind.DATAPLANEAPI, DataplaneKind.LOCAL), lacks="--pods or --agent")
    return _with_credentials(loaded)


def load_for_pods(config_map: Resource, secret: Resource | None) -> LoadedConfig:
    """Load a configuration for pods with agents, or with the Data Plane API."""
    kinds = (DataplaneKind.AGENT, DataplaneKind.LOCAL, DataplaneKind.DATAPLANEAPI)
    loaded = _load_for(config_map, secret, kinds)
    needs_credentials = loaded.config.dataplane.kind is DataplaneKind.DATAPLANEAPI
    return _with_selector(_with_credentials(loaded) if needs_credentials else loaded)


def load_for_api_pods(config_map: Resource, secret: Resource | None) -> LoadedConfig:
    """Load a configuration for pods without certificates for agents."""
    kinds = (DataplaneKind.DATAPLANEAPI,)
    hint = "give --agent-ca, --agent-cert and --agent-key"
    return _with_selector(_with_credentials(_load_for(config_map, secret, kinds, lacks="--agent-ca", hint=hint)))


def _load_for(
    config_map: Resource,
    secret: Resource | None,
    kinds: tuple[DataplaneKind, ...],
    *,
    lacks: str = "--pods",
    hint: str = "",
) -> LoadedConfig:
    loaded = load_config(config_map, secret)
    _reject_directories(loaded)
    kind = loaded.config.dataplane.kind
    if kind not in kinds:
        raise ConfigInvalidError(
            [
                Problem(
                    message=f"instances of kind `{kind}` cannot be reached by a controller started without {lacks}",
                    source=loaded.config_map_source,
                    path="dataplane.kind",
                    hint=hint or f"use `{kinds[0]}`",
                )
            ]
        )
    return loaded


def _reject_directories(loaded: LoadedConfig) -> None:
    """Raise ConfigInvalidError for absolute directories, which `haproxy -c` on this machine could not use."""
    dataplane = loaded.config.dataplane
    problems = [
        Problem(
            message=f"{directory!r} is absolute",
            source=loaded.config_map_source,
            path=f"dataplane.{field}",
            hint="use a relative path, such as `maps`: the Data Plane API decides about the directory",
        )
        for field, directory in (
            ("mapsDir", dataplane.maps_dir),
            ("sslCertsDir", dataplane.ssl_certs_dir),
            ("generalStorageDir", dataplane.general_storage_dir),
        )
        if directory.startswith("/")
    ]
    if problems:
        raise ConfigInvalidError(problems)


def _with_credentials(loaded: LoadedConfig) -> LoadedConfig:
    if loaded.credentials is None:
        raise ConfigInvalidError(
            [
                Problem(
                    message="the Data Plane API needs credentials, and the Secret does not exist",
                    source=loaded.config_map_source,
                    hint="create a Secret with dataplane_username and dataplane_password",
                )
            ]
        )
    return loaded


def _with_selector(loaded: LoadedConfig) -> LoadedConfig:
    if not loaded.config.pod_selector.match_labels:
        raise ConfigInvalidError(
            [
                Problem(
                    message="no labels select the HAProxy pods",
                    source=loaded.config_map_source,
                    path="podSelector.matchLabels",
                    hint="set the labels of the pods, such as `app: haproxy`",
                )
            ]
        )
    return loaded
