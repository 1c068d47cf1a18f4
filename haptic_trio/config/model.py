"""The configuration's shape: what `data.config` of the ConfigMap may hold.

Field names are camelCase in YAML. Durations are written `500ms`, `5s`, `1m`
and are float seconds here. Addresses, ports and directories of this machine
are flags of the command line, not fields.
"""

from enum import StrEnum
from typing import Any

import msgspec


class Duration(float):
    """Seconds, written as `250ms`, `5s`, `2m`, `1h` or a combination such as `1m30s`."""

    __slots__ = ()


class _Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class PodSelector(_Model, frozen=True):
    """Which pods are our HAProxy instances."""

    match_labels: dict[str, str] = {}


class LeaderElection(_Model, frozen=True):
    """The lease that decides which replica deploys."""

    enabled: bool = True
    lease_name: str = "haptic-trio-leader"
    lease_duration: Duration = Duration(15)
    renew_deadline: Duration = Duration(10)
    retry_period: Duration = Duration(2)


class ControllerConfig(_Model, frozen=True):
    """The controller itself."""

    leader_election: LeaderElection = LeaderElection()
    start_timeout: Duration = Duration(60)
    """An iteration that does not reach reconciliation within this time gives way to the last good configuration."""
    drain_timeout: Duration = Duration(5)
    """How long a deployment in flight may finish when its iteration ends."""


class LoggingConfig(_Model, frozen=True):
    """What is logged."""

    level: str = "info"


class DataplaneKind(StrEnum):
    """How an HAProxy instance is reached."""

    LOCAL = "local"
    AGENT = "agent"
    DATAPLANEAPI = "dataplaneapi"


class DataplaneConfig(_Model, frozen=True):
    """How and how often instances are deployed to."""

    kind: DataplaneKind = DataplaneKind.LOCAL
    port: int = 5555
    min_deployment_interval: Duration = Duration(2)
    drift_prevention_interval: Duration = Duration(60)
    deployment_timeout: Duration = Duration(30)
    max_parallel: int = 0
    """How many instances are deployed to at once; 0 is no limit."""
    maps_dir: str = "maps"
    ssl_certs_dir: str = "ssl"
    general_storage_dir: str = "general"
    config_file: str = "haproxy.cfg"


class ReconcilerConfig(_Model, frozen=True):
    """When changes become renders."""

    debounce_interval: Duration = Duration(5)


class ValidationMode(StrEnum):
    """Whether data-only changes wait for the full check."""

    FAST = "fast"
    STRICT = "strict"


class ValidationConfig(_Model, frozen=True):
    """How a rendered configuration is checked."""

    mode: ValidationMode = ValidationMode.STRICT
    check_timeout: Duration = Duration(30)
    """Time limit of one `haproxy -c`."""


class TemplatingConfig(_Model, frozen=True):
    """How templates are rendered and which shipped libraries are part of the configuration."""

    render_timeout: Duration = Duration(10)
    max_output_bytes: int = 256 * 1024 * 1024
    libraries: tuple[str, ...] = ("base", "ssl", "ingress")
    extra_context: dict[str, Any] = {}
    """Top-level variables of every template. A library's defaults are merged below these, key by key."""


class StoreKind(StrEnum):
    """What a store keeps in memory."""

    FULL = "full"
    ON_DEMAND = "on-demand"


class WatchedResource(_Model, frozen=True):
    """A kind of object that templates may look up under `resources.<name>`."""

    api_version: str
    resources: str
    """Lower-case plural, such as `ingresses`."""
    index_by: tuple[str, ...] = ("metadata.namespace", "metadata.name")
    """JSONPaths whose values are the look-up keys, most significant first. One may yield several values."""
    label_selector: str = ""
    field_selector: str = ""
    namespaces: tuple[str, ...] = ()
    store: StoreKind = StoreKind.FULL
    required: bool = True
    enable_validation_webhook: bool = False


class Snippet(_Model, frozen=True):
    """A piece of template that others include by name or by name prefix."""

    template: str
    priority: int = 500
    """Lower comes first where snippets are included by prefix; equal ones in order of name."""


class Template(_Model, frozen=True):
    """A template that becomes a file."""

    template: str


class ValidationTest(_Model, frozen=True):
    """A test that travels with the configuration: fixtures in, assertions out."""

    description: str = ""
    fixtures: dict[str, list[dict[str, Any]]] = {}
    http_resources: list[dict[str, Any]] = []
    current_config: str = ""
    extra_context: dict[str, Any] = {}
    assertions: list[dict[str, Any]] = []


class Config(_Model, frozen=True):
    """The whole configuration of one iteration."""

    pod_selector: PodSelector = PodSelector()
    controller: ControllerConfig = ControllerConfig()
    logging: LoggingConfig = LoggingConfig()
    dataplane: DataplaneConfig = DataplaneConfig()
    reconciler: ReconcilerConfig = ReconcilerConfig()
    validation: ValidationConfig = ValidationConfig()
    templating: TemplatingConfig = TemplatingConfig()
    watched_resources_ignore_fields: tuple[str, ...] = ("metadata.managedFields",)
    watched_resources: dict[str, WatchedResource] = {}
    template_snippets: dict[str, Snippet] = {}
    maps: dict[str, Template] = {}
    files: dict[str, Template] = {}
    ssl_certificates: dict[str, Template] = {}
    crt_lists: dict[str, Template] = {}
    haproxy_config: Template | None = None
    """Absent: the one of the libraries."""
    validation_tests: dict[str, ValidationTest] = {}
