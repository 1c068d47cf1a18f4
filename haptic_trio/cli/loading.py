"""Which configurations `serve` can run, given how it was told to reach its instances."""

from haptic_trio.config.errors import ConfigInvalidError
from haptic_trio.config.load import LoadedConfig, load_config
from haptic_trio.config.model import DataplaneKind
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource


def load_for_local_instances(config_map: Resource, secret: Resource | None) -> LoadedConfig:
    """Load a configuration for HAProxy processes of this machine; see `load_config`."""
    return _load_for(config_map, secret, (DataplaneKind.LOCAL,))


def load_for_agents(config_map: Resource, secret: Resource | None) -> LoadedConfig:
    """Load a configuration for a list of agents."""
    # `local` is what nobody has chosen.
    return _load_for(config_map, secret, (DataplaneKind.AGENT, DataplaneKind.LOCAL))


def load_for_pods(config_map: Resource, secret: Resource | None) -> LoadedConfig:
    """Load a configuration for pods with agents, or with the Data Plane API."""
    return _with_selector(
        _load_for(config_map, secret, (DataplaneKind.AGENT, DataplaneKind.LOCAL, DataplaneKind.DATAPLANEAPI))
    )


def load_for_api_pods(config_map: Resource, secret: Resource | None) -> LoadedConfig:
    """Load a configuration for pods, where there are no certificates to reach agents with."""
    kinds = (DataplaneKind.DATAPLANEAPI,)
    return _with_selector(
        _load_for(config_map, secret, kinds, lacks="--agent-ca", hint="give --agent-ca, --agent-cert and --agent-key")
    )


def _load_for(
    config_map: Resource,
    secret: Resource | None,
    kinds: tuple[DataplaneKind, ...],
    *,
    lacks: str = "--pods",
    hint: str = "",
) -> LoadedConfig:
    loaded = load_config(config_map, secret)
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


def _with_selector(loaded: LoadedConfig) -> LoadedConfig:
    if not loaded.config.pod_selector.match_labels:
        raise ConfigInvalidError(
            [
                Problem(
                    message="no labels choose the HAProxy pods",
                    source=loaded.config_map_source,
                    path="podSelector.matchLabels",
                    hint="name the labels that they have, such as `app: haproxy`",
                )
            ]
        )
    return loaded
