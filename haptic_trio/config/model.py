"""Model of the configuration: the schema of `data.config` in the ConfigMap.

Field names are camelCase in YAML. Durations are written `500ms`, `5s`, `1m`
and are float seconds here. Addresses, ports and directories of this machine
are flags of the command line, not fields.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from haptic_trio.config.assertions import Assertion


class Duration(float):
    """Seconds, written as `250ms`, `5s`, `2m`, `1h` or a combination such as `1m30s`."""

    __slots__ = ()


PositiveDuration = Annotated[Duration, msgspec.Meta(extra={"positive": True})]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class _Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class PodSelector(_Model, frozen=True):
    """Which pods are our HAProxy instances."""

    match_labels: dict[str, str] = {}
    """Labels that a pod must have, all of them. Not used for local instances."""


class LeaderElection(_Model, frozen=True):
    """The lease that decides which replica deploys."""

    enabled: bool = True
    """False: this replica is always the leader. Run only one then."""
    lease_name: str = "haptic-trio-leader"
    """Name of the Lease object."""
    lease_duration: PositiveDuration = Duration(15)
    """Others take the lease over when it was not renewed for this long. Longer than `renewDeadline`."""
    renew_deadline: PositiveDuration = Duration(10)
    """The leader steps down when it could not renew for this long. Longer than `retryPeriod`."""
    retry_period: PositiveDuration = Duration(2)
    """Time between two attempts to take or renew the lease."""


class ControllerConfig(_Model, frozen=True):
    """The controller itself."""

    leader_election: LeaderElection = LeaderElection()
    """The lease that decides which replica deploys."""
    start_timeout: PositiveDuration = Duration(60)
    """An iteration that does not reach reconciliation within this time gives way to the last good configuration."""
    drain_timeout: Duration = Duration(5)
    """How long a deployment in flight may finish when its iteration ends."""


class LogLevel(StrEnum):
    """The least severe lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LoggingConfig(_Model, frozen=True):
    """What is logged."""

    level: LogLevel = LogLevel.INFO
    """Lines of this level and the more severe ones are written."""


class DataplaneKind(StrEnum):
    """How an HAProxy instance is reached."""

    LOCAL = "local"
    AGENT = "agent"
    DATAPLANEAPI = "dataplaneapi"


class DataplaneConfig(_Model, frozen=True):
    """How and how often instances are deployed to."""

    kind: DataplaneKind = DataplaneKind.LOCAL
    """How instances are reached: processes of this machine, our agent beside HAProxy, or HAProxy's Data Plane API."""
    port: Port = 5555
    """TCP port of the agent or the Data Plane API in each pod. Not used for local instances."""
    min_deployment_interval: Duration = Duration(2)
    """Least time between two deployments; `0s` is no limit."""
    drift_prevention_interval: PositiveDuration = Duration(60)
    """After this long without a deployment the configuration is rendered and compared with the instances again."""
    deployment_timeout: PositiveDuration = Duration(30)
    """A deployment that takes longer counts as failed for the instances that have not answered."""
    max_parallel: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many instances are deployed to at once; 0 is no limit."""
    maps_dir: str = "maps"
    """Directory of maps on the instances, as haproxy.cfg names it, relative to that file."""
    ssl_certs_dir: str = "ssl"
    """Directory of certificates and crt-lists."""
    general_storage_dir: str = "general"
    """Directory of all other files, such as error pages."""
    config_file: str = "haproxy.cfg"
    """File that receives the rendered HAProxy configuration."""


class InstancesConfig(_Model, frozen=True):
    """The HAProxy instances that the controller itself makes, replaces and removes; see fleet.md."""

    size: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    """Instances that shall be ready. Absent: as many as `--instances` says; one pod where there is a `podTemplate`."""
    surge: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Instances above `size` that replacements may use at once. All but urgent ones take one."""
    max_age: Duration = Duration(0)
    """From this age on an instance is replaced, one at a time, each a little earlier by chance; `0s` is no limit."""
    forced_age: Duration = Duration(0)
    """At this age an instance is replaced whatever else goes on; `0s` is no limit."""
    drain_timeout: Duration = Duration(300)
    """How long an instance that leaves may finish what it has; `0s` cuts its connections off."""
    start_timeout: PositiveDuration = Duration(60)
    """An instance that is not ready by then is removed, and another one is made."""
    health_interval: PositiveDuration = Duration(10)
    """Between two looks at each instance."""
    missed: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Looks in a row without an answer after which an instance is replaced."""
    create_interval: Duration = Duration(0)
    """Least time between two instances that are made; `0s` is no limit."""
    revision: str = ""
    """Any text. Another one has all instances replaced, one after the other."""
    pod_template: str = ""
    """With `--pods`: the PodTemplate in the controller's namespace that pods are made from. Empty: somebody else makes
    them, such as a Deployment."""


class ReconcilerMode(StrEnum):
    """What the intervals hold back."""

    TWO_SPEEDS = "two-speeds"
    CLASSIC = "classic"


class ReconcilerConfig(_Model, frozen=True):
    """When changes become renders, and when these reload HAProxy."""

    mode: ReconcilerMode = ReconcilerMode.TWO_SPEEDS
    """`two-speeds`: what the running HAProxy can take passes at once, and only reloads are held back. `classic`: every
    change waits for `debounceInterval`, for both phases of validation, and for `dataplane.minDeploymentInterval`."""
    debounce_interval: Duration = Duration(5)
    """Least time between two deployments that reload. In classic mode: the first change triggers at once; further ones
    within this time are gathered into the next trigger."""
    runtime_interval: Duration = Duration(0.05)
    """The first change triggers at once; further ones within this time are gathered. Not used in classic mode."""


class ValidationMode(StrEnum):
    """Whether data waits for HAProxy's check of everything."""

    FAST = "fast"
    STRICT = "strict"


class ValidationConfig(_Model, frozen=True):
    """How a rendered configuration is checked."""

    mode: ValidationMode = ValidationMode.FAST
    """`fast`: servers, map entries, certificates and whole backends are deployed once our own parser has accepted
    them, and `haproxy -c` of everything runs beside; what it refuses is taken back. `strict`: everything waits for
    both. In classic mode of the reconciler it is always strict."""
    interval: Duration = Duration(2)
    """Least time between two runs of `haproxy -c` beside changes; one that a reload waits for is not put off."""
    check_timeout: PositiveDuration = Duration(30)
    """Time limit of one `haproxy -c`. After the second time-out of the same configuration, objects that add more than a
    tenth of this to the CPU time of the check are quarantined; a busy machine does not count."""
    paranoia_every: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Every so many renders, everything is rendered anew and compared with what was put together from parts that had
    not changed. A difference is reported as a bug, and what is new is used. 0 is never."""


class TemplatingConfig(_Model, frozen=True):
    """How templates are rendered and which shipped libraries are part of the configuration."""

    render_timeout: PositiveDuration = Duration(10)
    """CPU time that template code outside of fragments may take in one rendering; longer lists of objects add to it.
    A template that takes longer ends the rendering."""
    max_output_bytes: Annotated[int, msgspec.Meta(ge=1)] = 256 * 1024 * 1024
    """Limit on what one template may write outside of fragments, in bytes."""
    fragment_timeout: PositiveDuration = Duration(5)
    """CPU time that one fragment of an object may take. An object that takes longer is quarantined."""
    max_fragment_bytes: Annotated[int, msgspec.Meta(ge=1)] = 8 * 1024 * 1024
    """Limit on text and files of one fragment of an object, in bytes. An object that exceeds it is quarantined."""
    max_namespace_bytes: Annotated[int, msgspec.Meta(ge=1)] = 64 * 1024 * 1024
    """Limit on text and files of all objects of one namespace, in bytes. Objects that exceed it are quarantined."""
    max_namespace_hash_rounds: Annotated[int, msgspec.Meta(ge=1)] = 2_000_000
    """Limit on the rounds of all password hashes of one namespace, for each Ingress that uses them. HAProxy
    computes every hash whenever it reads a configuration. Objects that exceed it are quarantined."""
    max_hash_rounds: Annotated[int, msgspec.Meta(ge=1)] = 20_000_000
    """Limit on the rounds of all password hashes of all namespaces together, which HAProxy takes five to six seconds
    of CPU time to compute (0.27 s for each million, measured). What is served keeps its share; of objects that ask
    for more, the youngest are quarantined first."""
    libraries: tuple[str, ...] = ("base", "ssl", "ingress")
    """Shipped libraries that are part of the configuration; a later one overrides an earlier one entry by entry."""
    extra_context: dict[str, Any] = {}
    """Top-level variables of every template. A library's defaults are merged below these, key by key."""


class HttpConfig(_Model, frozen=True):
    """What templates may fetch with `http.fetch`; see http-content.md."""

    allowed_hosts: tuple[str, ...] = ()
    """Hosts that may be fetched from, redirects included: names, or patterns such as `*.example.com`. Empty: any."""
    allowed_networks: tuple[str, ...] = ()
    """Networks such as `127.0.0.1/32` that may be connected to although they are this machine, its link, or a service
    of its cloud."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=256 * 1024 * 1024)] = 1024 * 1024
    """Limit on one content, decompressed, in bytes."""
    max_contents: Annotated[int, msgspec.Meta(ge=0)] = 100
    """How many contents are kept; what templates fetch beyond that has none."""
    max_concurrent: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """How many are fetched at the same time."""
    max_timeout: PositiveDuration = Duration(30)
    """The longest `timeout` that a template may give a fetch. The first fetch holds up rendering for as long."""
    min_interval: PositiveDuration = Duration(1)
    """The shortest `interval` that a template may give a fetch."""


class StoreKind(StrEnum):
    """What a store keeps in memory."""

    FULL = "full"
    ON_DEMAND = "on-demand"


class WatchedResource(_Model, frozen=True):
    """A kind of object that templates may look up under `resources.<name>`."""

    api_version: str
    """Group and version such as `networking.k8s.io/v1`, or only the version, such as `v1`."""
    resources: str
    """Lower-case plural, such as `ingresses`."""
    index_by: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("metadata.namespace", "metadata.name")
    """JSONPaths whose values are the look-up keys, most significant first. One may yield several values.
    `ingress_hosts()` stands for the hosts that an Ingress serves, `listener_set_gateway()` for the
    namespace and name of the Gateway that a ListenerSet is for, with `/` between them."""
    label_selector: str = ""
    """Only objects with these labels, in Kubernetes' syntax: `app=web,tier in (a, b)`."""
    field_selector: str = ""
    """Only objects with these field values: `metadata.name=x,spec.type!=ExternalName`."""
    namespaces: tuple[str, ...] = ()
    """Only objects of these namespaces; empty is all."""
    ignore_fields: tuple[str, ...] = ()
    """JSONPaths of fields that count for nothing and are not kept, beside those of `watchedResourcesIgnoreFields`."""
    store: StoreKind = StoreKind.FULL
    """`full` keeps whole objects; `on-demand` keeps their keys and fetches an object when a template uses it."""
    cache_size: Annotated[int, msgspec.Meta(ge=0)] = 256
    """How many objects that were fetched `on-demand` are kept between two renders."""
    cache_ttl: PositiveDuration = Duration(300)
    """How long after its last use an object that was fetched `on-demand` is kept."""
    required: bool = True
    """False: a kind that may not be read counts as empty instead of holding back the start."""
    enable_validation_webhook: bool = False
    """Have the API server ask us before it accepts such an object, see webhook.md; a directory has nobody to ask."""


class Snippet(_Model, frozen=True):
    """A piece of template that others include by name or by name prefix."""

    template: str
    """The Jinja2 source."""
    priority: int = 500
    """Lower comes first where snippets are included by prefix; equal ones in order of name."""


class Template(_Model, frozen=True):
    """A template that becomes a file."""

    template: str
    """The Jinja2 source."""


class HttpResource(_Model, frozen=True):
    """What an HTTP fetch of a test returns."""

    url: str
    """As the template fetches it, without a fragment."""
    content: str | None = None
    """The text."""
    error: str = ""
    """Instead of a content: why there is none."""


class ValidationTest(_Model, frozen=True):
    """A test that travels with the configuration: fixtures in, assertions out."""

    description: str = ""
    """What the test shows."""
    extends: str = ""
    """Another test, whose fixtures, variables and HTTP resources are below those of this one."""
    fixtures: dict[str, list[dict[str, Any]]] = {}
    """Objects by name of a watched resource: the cluster as the test has it. Stores of the same kind share them."""
    previous_fixtures: dict[str, list[dict[str, Any]]] = {}
    """The cluster before, for `plan`: names that are given here have these objects instead of those of `fixtures`."""
    http_resources: list[HttpResource] = []
    """What HTTP fetches return. What is not given here fails."""
    previous_http_resources: list[HttpResource] = []
    """What was otherwise of it before, for `plan`."""
    current_config: str = ""
    """The HAProxy configuration that runs before, for `plan`."""
    extra_context: dict[str, Any] = {}
    """Variables that replace those of `templating.extraContext`, key by key."""
    assertions: list[Assertion] = []
    """What must hold. Without any, the test is there to be extended."""


class Config(_Model, frozen=True):
    """The whole configuration of one iteration."""

    pod_selector: PodSelector = PodSelector()
    """Which pods are our HAProxy instances."""
    controller: ControllerConfig = ControllerConfig()
    """The controller itself."""
    logging: LoggingConfig = LoggingConfig()
    """What is logged."""
    dataplane: DataplaneConfig = DataplaneConfig()
    """How and how often instances are deployed to."""
    instances: InstancesConfig = InstancesConfig()
    """The instances that the controller makes, replaces and removes."""
    reconciler: ReconcilerConfig = ReconcilerConfig()
    """When changes become renders."""
    validation: ValidationConfig = ValidationConfig()
    """How a rendered configuration is checked."""
    templating: TemplatingConfig = TemplatingConfig()
    """How templates are rendered and which shipped libraries take part."""
    http: HttpConfig = HttpConfig()
    """What templates may fetch."""
    watched_resources_ignore_fields: tuple[str, ...] = ("metadata.managedFields",)
    """JSONPaths that are removed from every object; a change that touches only these is none."""
    watched_resources: dict[str, WatchedResource] = {}
    """Kinds of objects by the name that templates use: `resources.<name>`."""
    template_snippets: dict[str, Snippet] = {}
    """Pieces of template by name."""
    maps: dict[str, Template] = {}
    """Map files by file name, in `dataplane.mapsDir`."""
    files: dict[str, Template] = {}
    """Other files by file name, in `dataplane.generalStorageDir`."""
    ssl_certificates: dict[str, Template] = {}
    """Certificates (PEM with key) by file name, in `dataplane.sslCertsDir`. Their content is treated as secret."""
    crt_lists: dict[str, Template] = {}
    """Lists of certificates by file name, in `dataplane.sslCertsDir`."""
    haproxy_config: Template | None = None
    """The template of haproxy.cfg. Absent: the one of the libraries."""
    validation_tests: dict[str, ValidationTest] = {}
    """Tests by name that travel with the configuration, and must pass before it is accepted; see testing.md."""
