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
    """The pods that are HAProxy instances of this controller."""

    match_labels: dict[str, str] = {}
    """Labels that a pod must have, all of them. Not used for local instances."""


class LeaderElection(_Model, frozen=True):
    """The lease that decides which replica deploys."""

    enabled: bool = True
    """False: this replica is always the leader. Run only one then."""
    lease_name: str = "haptic-trio-leader"
    """Name of the Lease object."""
    lease_duration: PositiveDuration = Duration(15)
    """Another replica takes the lease when it was not renewed for this long. Longer than `renewDeadline`."""
    renew_deadline: PositiveDuration = Duration(10)
    """The leader steps down when it could not renew for this long. Longer than `retryPeriod`."""
    retry_period: PositiveDuration = Duration(2)
    """Time between two attempts to take or renew the lease."""


class ControllerConfig(_Model, frozen=True):
    """The controller itself."""

    leader_election: LeaderElection = LeaderElection()
    """The lease that decides which replica deploys."""
    start_timeout: PositiveDuration = Duration(60)
    """If an iteration does not reach reconciliation within this time, the last good configuration is used. The time
    counts again while the first lists make progress."""
    drain_timeout: Duration = Duration(5)
    """Time that a deployment in flight has to finish when its iteration ends."""
    publish_configuration: bool = False
    """True: the leader writes `haproxy.cfg`, the maps and the state of each instance to objects of the API server,
    without content of Secrets; see kubernetes.md#published-configuration."""


class LogLevel(StrEnum):
    """The minimum severity of log lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LoggingConfig(_Model, frozen=True):
    """Logging."""

    level: LogLevel = LogLevel.INFO
    """Minimum severity of the lines that are written."""


class DataplaneKind(StrEnum):
    """Connection of the controller to an HAProxy instance."""

    LOCAL = "local"
    AGENT = "agent"
    DATAPLANEAPI = "dataplaneapi"


class DataplaneConfig(_Model, frozen=True):
    """Deployment to the instances."""

    kind: DataplaneKind = DataplaneKind.LOCAL
    """Connection of the controller to instances: local processes, haptic-trio's agent beside HAProxy, or HAProxy's Data
    Plane API."""
    port: Port = 5555
    """TCP port of the agent or the Data Plane API in each pod. Not used for local instances."""
    min_deployment_interval: Duration = Duration(2)
    """Minimum time between two deployments; `0s` disables the limit."""
    namespace_reload_interval: Duration = Duration(180)
    """Average time between two reloads for the changes of one namespace, which can make five reloads sooner. Further
    changes that need a reload wait, at most this long, until the namespace may reload again, or until another one does.
    `0s` disables the limit."""
    drift_prevention_interval: PositiveDuration = Duration(60)
    """After this long without a deployment the configuration is rendered and compared with the instances again."""
    deployment_timeout: PositiveDuration = Duration(30)
    """A deployment that takes longer has failed for the instances that have not responded."""
    max_parallel: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Maximum of concurrent deployments to instances; 0 disables the limit."""
    maps_dir: str = "maps"
    """Directory of maps on the instances, as haproxy.cfg names it, relative to that file."""
    ssl_certs_dir: str = "ssl"
    """Directory of certificates and crt-lists."""
    general_storage_dir: str = "general"
    """Directory of all other files, such as error pages."""
    config_file: str = "haproxy.cfg"
    """File that receives the rendered HAProxy configuration."""


class InstancesConfig(_Model, frozen=True):
    """The HAProxy instances that the controller itself creates, replaces and removes; see fleet.md."""

    size: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    """Desired number of ready instances. Absent: the value of `--instances`; one pod if there is a `podTemplate`."""
    surge: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Instances above `size` that replacements may use at once. Only urgent replacements use more than one."""
    max_age: Duration = Duration(0)
    """Instances of this age are replaced, one at a time, each a random time earlier; `0s` disables the limit."""
    forced_age: Duration = Duration(0)
    """An instance of this age is replaced unconditionally; `0s` disables the limit."""
    drain_timeout: Duration = Duration(300)
    """Time that a draining instance has to finish its connections; `0s` closes them at once."""
    start_timeout: PositiveDuration = Duration(60)
    """An instance that is not ready within this time is removed, and another one is created."""
    health_interval: PositiveDuration = Duration(10)
    """Time between two health checks of an instance."""
    missed: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Failed health checks in a row after which an instance is replaced."""
    create_interval: Duration = Duration(0)
    """Minimum time between the creation of two instances; `0s` disables the limit."""
    revision: str = ""
    """Any text. When it changes, all instances are replaced, one after the other."""
    pod_template: str = ""
    """With `--pods`: the PodTemplate in the controller's namespace for new pods. Empty: the controller creates no pods;
    a Deployment does, for example."""


class ReconcilerMode(StrEnum):
    """Changes that wait for the intervals."""

    TWO_SPEEDS = "two-speeds"
    CLASSIC = "classic"


class ReconcilerConfig(_Model, frozen=True):
    """When changes trigger renders, and when renders reload HAProxy."""

    mode: ReconcilerMode = ReconcilerMode.TWO_SPEEDS
    """`two-speeds`: changes that the running HAProxy can apply are deployed at once, and only reloads are delayed.
    `classic`: every change waits for `debounceInterval`, the full validation and `dataplane.minDeploymentInterval`."""
    debounce_interval: Duration = Duration(5)
    """Minimum time between two deployments that reload. In classic mode: the first change triggers at once; further
    changes within this time are combined into the next trigger."""
    runtime_interval: Duration = Duration(0.05)
    """The first change triggers at once; further changes within this time are combined. Not used in classic mode."""
    intake_time: Duration = Duration(0.2)
    """CPU time of a render at which the controller aims while the changes of a namespace, or of all, are too many for
    one. The others wait for the next renders, which follow at once, so that changes of other namespaces are not
    delayed. `0s` turns this off. Not used in classic mode, or with `validation.mode: strict`."""


class ValidationMode(StrEnum):
    """Whether data waits for a full `haproxy -c`."""

    FAST = "fast"
    STRICT = "strict"


class ValidationConfig(_Model, frozen=True):
    """Validation of a rendered configuration."""

    mode: ValidationMode = ValidationMode.FAST
    """`fast`: servers, map entries, certificates and whole backends are deployed once haptic-trio's parser has accepted
    them; a full `haproxy -c` runs in parallel, and a change that HAProxy rejects is rolled back. `strict`: every change
    waits for both checks. The classic mode of the reconciler is always strict."""
    interval: Duration = Duration(2)
    """Minimum time between two parallel runs of `haproxy -c`; a run that a reload waits for is not delayed."""
    check_timeout: PositiveDuration = Duration(30)
    """Time limit of one `haproxy -c`. After the second time-out of the same configuration, objects that add more than a
    tenth of this to the CPU time of the check are quarantined; or else the youngest of a namespace whose changed
    objects add more than a third of it. A busy machine does not count."""
    paranoia_every: Annotated[int, msgspec.Meta(ge=0)] = 0
    """After this many renders, everything is rendered again and compared with the incremental result. A
    difference is reported as a bug, and the new result is used. 0 is never."""


class TemplatingConfig(_Model, frozen=True):
    """Rendering of templates, and the shipped libraries in the configuration."""

    render_timeout: PositiveDuration = Duration(10)
    """CPU time that template code outside of fragments may take in one render; the limit grows with lists of objects.
    A template that takes longer fails the render."""
    max_output_bytes: Annotated[int, msgspec.Meta(ge=1)] = 256 * 1024 * 1024
    """Limit on the output of one template outside of fragments, in bytes."""
    fragment_timeout: PositiveDuration = Duration(5)
    """CPU time that one fragment of an object may take. An object that takes longer is quarantined."""
    max_fragment_bytes: Annotated[int, msgspec.Meta(ge=1)] = 8 * 1024 * 1024
    """Limit on text and files of one fragment of an object, in bytes. An object that exceeds it is quarantined."""
    max_namespace_bytes: Annotated[int, msgspec.Meta(ge=1)] = 64 * 1024 * 1024
    """Limit on text and files of all objects of one namespace, in bytes. Objects that exceed it are quarantined."""
    max_backend_servers: Annotated[int, msgspec.Meta(ge=1)] = 20_000
    """Limit on the servers of one backend: the endpoints of a Service. HAProxy 2.8 takes quadratic time for the servers
    of a backend, whenever it reads a configuration and when their addresses change: 0.1 s of CPU time for 5,000, 2.8 s
    for 20,000 (measured). An object with more is quarantined."""
    max_backend_rules: Annotated[int, msgspec.Meta(ge=1)] = 5_000
    """Limit on the rules (`http-request`, `http-response`, …) of one backend, which each request runs: 35,000 take
    HAProxy 60 ms (measured), in which its thread serves no other request. An object with more is quarantined."""
    max_namespace_servers: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    """Limit on the servers in the outputs of all objects of one namespace. A Service has one for each of its ports
    and endpoints, and HAProxy keeps about 4 KiB for each. A server with TLS, which takes `haproxy -c` 0.16 ms and 17
    to 22 KiB (measured), counts as ten; one that 100 CA certificates verify, as 26. A backend of 5,000 servers
    counts as 8,125, one of 20,000 as 70,000. Objects that exceed it are quarantined."""
    max_namespace_certificate_lines: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """Limit on the certificate lines of all objects of one namespace: one for each Secret that a TLS block of an
    Ingress, or a listener of a Gateway or ListenerSet, names. Each takes `haproxy -c` 0.2 ms and 14 KiB (measured).
    More addresses, host names, CA certificates or PEM blocks than usual count as more lines. Objects that exceed it are
    quarantined."""
    max_namespace_table_entries: Annotated[int, msgspec.Meta(ge=1)] = 2_000_000
    """Limit on the entries of the stick tables of all objects of one namespace. A backend with a rate limit has a table
    of 102,400 entries, one for each client address, unless an annotation says otherwise; HAProxy keeps about 250 bytes
    for each entry in use. Objects that exceed it are quarantined."""
    max_namespace_hash_rounds: Annotated[int, msgspec.Meta(ge=1)] = 2_000_000
    """Limit on the rounds of all password hashes of one namespace, for each Ingress that uses them. HAProxy
    computes every hash whenever it reads a configuration. Objects that exceed it are quarantined."""
    max_hash_rounds: Annotated[int, msgspec.Meta(ge=1)] = 20_000_000
    """Limit on the rounds of all password hashes of all namespaces together, which HAProxy takes five to six seconds
    of CPU time to compute (0.27 s for each million, measured). What is served keeps its share; of objects that ask
    for more, the youngest are quarantined first."""
    libraries: tuple[str, ...] = ("base", "ssl", "ingress")
    """Shipped libraries in the configuration; a later library overrides an earlier one entry by entry."""
    extra_context: dict[str, Any] = {}
    """Top-level variables of every template. A library's defaults are merged below these, key by key."""


class HttpConfig(_Model, frozen=True):
    """Limits on `http.fetch` in templates; see http-content.md."""

    allowed_hosts: tuple[str, ...] = ()
    """Hosts that may be fetched from, redirects included: names, or patterns such as `*.example.com`. Empty: any."""
    allowed_networks: tuple[str, ...] = ()
    """Networks such as `127.0.0.1/32` that are allowed although they belong to this machine, its link, or a metadata
    service of its cloud."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=256 * 1024 * 1024)] = 1024 * 1024
    """Limit on one content, decompressed, in bytes."""
    max_contents: Annotated[int, msgspec.Meta(ge=0)] = 100
    """Maximum number of contents; further fetches fail."""
    max_concurrent: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """Maximum of concurrent fetches."""
    max_timeout: PositiveDuration = Duration(30)
    """The longest `timeout` that a template may give a fetch. The first fetch delays rendering by up to this time."""
    min_interval: PositiveDuration = Duration(1)
    """The shortest `interval` that a template may give a fetch."""


class StoreKind(StrEnum):
    """The data that a store keeps in memory."""

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
    `ingress_hosts()` stands for the hosts that an Ingress serves, `ingress_paths()` for `<host>|<path>` of
    each of its rules with a host, with `=` before an Exact path, `listener_set_gateway()` for the namespace
    and name of the Gateway that a ListenerSet is for, with `/` between them, and the names that begin with
    `route_` for fields of routes that the library `gateway` finds them by."""
    label_selector: str = ""
    """Only objects with these labels, in Kubernetes' syntax: `app=web,tier in (a, b)`."""
    field_selector: str = ""
    """Only objects with these field values: `metadata.name=x,spec.type!=ExternalName`."""
    namespaces: tuple[str, ...] = ()
    """Only objects of these namespaces; empty is all."""
    ignore_fields: tuple[str, ...] = ()
    """JSONPaths of fields that are removed from each object, in addition to `watchedResourcesIgnoreFields`."""
    store: StoreKind = StoreKind.FULL
    """`full` keeps whole objects; `on-demand` keeps their keys and fetches an object when a template uses it."""
    cache_size: Annotated[int, msgspec.Meta(ge=0)] = 256
    """Maximum number of fetched objects that an `on-demand` store keeps between two renders."""
    cache_ttl: PositiveDuration = Duration(300)
    """Time after its last use for which an `on-demand` store keeps a fetched object."""
    required: bool = True
    """False: if the role does not allow to read the kind, it counts as empty instead of delaying the start."""
    enable_validation_webhook: bool = False
    """Validate such objects by the admission webhook before the API server accepts them, see webhook.md. Not used
    with a directory."""


class Snippet(_Model, frozen=True):
    """A piece of template that others include by name or by name prefix."""

    template: str
    """The Jinja2 source."""
    priority: int = 500
    """Order of snippets that are included by prefix: lower first, equal priorities by name."""


class Template(_Model, frozen=True):
    """A template that becomes a file."""

    template: str
    """The Jinja2 source."""


class HttpResource(_Model, frozen=True):
    """The result of an HTTP fetch in a test."""

    url: str
    """As the template fetches it, without a fragment."""
    content: str | None = None
    """The text."""
    error: str = ""
    """The error of the fetch, instead of a content."""


class ValidationTest(_Model, frozen=True):
    """A test that travels with the configuration: fixtures in, assertions out."""

    description: str = ""
    """The purpose of the test."""
    extends: str = ""
    """Another test, whose fixtures, variables and HTTP resources this test inherits and overrides."""
    fixtures: dict[str, list[dict[str, Any]]] = {}
    """Objects of the cluster by name of a watched resource. Stores of the same kind share them."""
    previous_fixtures: dict[str, list[dict[str, Any]]] = {}
    """Objects before the change, for `plan`: they replace those of `fixtures` for each name that is given here."""
    http_resources: list[HttpResource] = []
    """Results of HTTP fetches. Other fetches fail."""
    previous_http_resources: list[HttpResource] = []
    """Results that were different before the change, for `plan`."""
    current_config: str = ""
    """The HAProxy configuration before the change, for `plan`."""
    extra_context: dict[str, Any] = {}
    """Variables that replace those of `templating.extraContext`, key by key."""
    assertions: list[Assertion] = []
    """Expectations. A test without assertions only serves as a base for others."""


class Config(_Model, frozen=True):
    """The whole configuration of one iteration."""

    pod_selector: PodSelector = PodSelector()
    """The pods that are HAProxy instances of this controller."""
    controller: ControllerConfig = ControllerConfig()
    """The controller itself."""
    logging: LoggingConfig = LoggingConfig()
    """Logging."""
    dataplane: DataplaneConfig = DataplaneConfig()
    """Deployment to the instances."""
    instances: InstancesConfig = InstancesConfig()
    """The instances that the controller creates, replaces and removes."""
    reconciler: ReconcilerConfig = ReconcilerConfig()
    """When changes trigger renders."""
    validation: ValidationConfig = ValidationConfig()
    """Validation of a rendered configuration."""
    templating: TemplatingConfig = TemplatingConfig()
    """Rendering of templates, and the shipped libraries."""
    http: HttpConfig = HttpConfig()
    """Limits on HTTP fetches of templates."""
    watched_resources_ignore_fields: tuple[str, ...] = ("metadata.managedFields",)
    """JSONPaths that are removed from every object; a change of only these fields is ignored."""
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
