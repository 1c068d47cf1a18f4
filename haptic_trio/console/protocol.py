"""Wire protocol of the console; its JSON form is stable.

Times are seconds of the controller's monotonic clock. `clock` and `unix` of a
`Moment` are the same instant, so that a client can compute the time of day.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from haptic_trio.dataplane.figures import BackendFigures, ProcessFigures
from haptic_trio.explain.answers import ServedCertificate
from haptic_trio.explain.route_list import Route
from haptic_trio.pipeline.rejection.summary import ObjectProblems

PROTOCOL = 1
"""Grows when a field changes its meaning or is removed, not when fields are added."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One instant on both clocks."""

    clock: float
    unix: float


class ScopeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A nursery's cancel scope."""

    deadline: float | None = None
    """Clock time; None without one."""
    shield: bool = False
    cancelled: bool = False


class NurseryView(msgspec.Struct, frozen=True, kw_only=True):
    """A nursery and the tasks in it."""

    scope: ScopeView
    tasks: tuple["TaskView", ...]


class TaskView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task and its nurseries."""

    name: str
    place: str = ""
    """Innermost code of haptic-trio on the stack, as `module:line function`."""
    waits_for: str = ""
    """The innermost call, such as `MemoryReceiveChannel.receive`."""
    nurseries: tuple[NurseryView, ...] = ()
    left_out: int = 0
    """Tasks below it that are omitted because there are too many."""


class TaskTree(msgspec.Struct, frozen=True, kw_only=True):
    """All tasks of the process."""

    root: TaskView
    shown: int
    total: int


class ChannelView(msgspec.Struct, frozen=True, kw_only=True):
    """A channel, or a cell that keeps only the newest value."""

    name: str
    kind: str
    """`channel` or `latest`."""
    used: int
    size: int
    high: int
    """Highest observed fill level since clients read it."""
    senders: int = 0
    receivers: int = 0
    waiting_senders: int = 0
    waiting_receivers: int = 0
    puts: int = 0
    """Number of values that a cell has had."""


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """The watched objects of one kind."""

    name: str
    objects: int
    version: int
    """Grows with each visible change."""


class StageView(msgspec.Struct, frozen=True, kw_only=True):
    """A completed startup stage."""

    stage: int
    name: str
    seconds: float
    """Time since the start of the iteration."""


class CycleView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reconciliation so far. Times are clock times, durations are in seconds."""

    correlation: str
    reason: str = ""
    changes: int = 0
    seen: float | None = None
    """Time of its first change; the debouncer holds it until `triggered`."""
    objects: tuple[str, ...] = ()
    """The first changed objects, as `kind namespace/name`."""
    triggered: float | None = None
    started: float | None = None
    render: float = 0.0
    parse: float = 0.0
    check: float = 0.0
    rendered: int = 0
    """Number of fragments."""
    reused: int = 0
    deploy_started: float | None = None
    deploy_seconds: float | None = None
    operations: Mapping[str, int] = {}
    """Runtime changes by kind, such as `server added`; those of the instance with the most of them."""
    reloaded: int = 0
    """Number of instances that it reloaded."""
    reasons: tuple[str, ...] = ()
    """Why it reloaded instances: changes that no runtime operation could make."""
    held: tuple[str, ...] = ()
    """Changes of it that wait for a reload."""
    traffic: float | None = None
    """Seconds from its first change until every instance had all of it; absent while some instance lacks a part."""
    served_by: str = ""
    """The later reconciliation that brought its changes to the last instance, if it was not this one."""
    outcome: str = ""
    """Empty while it runs, then an outcome, or `failed in` and a phase."""
    ended: float | None = None


class ReloadView(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment that reloaded an instance."""

    at: float
    """Clock time."""
    correlation: str
    reasons: tuple[str, ...] = ()
    """Changes that no runtime operation could make."""
    objects: tuple[str, ...] = ()
    """The first objects whose changes caused its cycle, as `kind namespace/name`."""


class InstanceView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An endpoint."""

    name: str
    generation: str = ""
    """Generation of its latest successful deployment."""
    correlation: str = ""
    at: float | None = None
    """Clock time of the latest deployment, successful or not."""
    seconds: float = 0.0
    operations: int = 0
    reloaded: bool = False
    reasons: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    """Changes that wait for a reload."""
    error: str = ""
    """Error of the latest deployment; empty after a success."""
    reloads: int = 0
    """Deployments with a reload since the controller was started."""
    last_reload: ReloadView | None = None


class ComponentView(msgspec.Struct, frozen=True, kw_only=True):
    """Heartbeat of a component."""

    name: str
    busy: bool
    stalled: bool
    detail: str


class IterationView(msgspec.Struct, frozen=True, kw_only=True):
    """The running iteration."""

    number: int
    opened: float
    stage: int
    is_ready: bool
    config_version: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of the controller."""

    iteration: IterationView | None
    """None between two iterations."""
    stages: tuple[StageView, ...]
    is_leader: bool
    identity: str
    components: tuple[ComponentView, ...]
    instances: tuple[InstanceView, ...]
    fleet: Any
    """Output of `haptic-trio fleet list --output json`; null if haptic-trio does not manage the instances."""
    cycles: tuple[CycleView, ...]
    """Oldest first."""
    fragments_rendered: int
    fragments_reused: int
    """Sum over `cycles`."""
    quarantined: int
    problems: Mapping[str, tuple[str, ...]]
    """Problems of inputs, by source."""
    objects: ObjectProblems = ObjectProblems()
    """Quarantined objects and warnings about objects."""


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded event."""

    number: int
    """Sequence number, from 1."""
    at: float
    kind: str
    correlation: str
    level: str
    text: str
    fields: Mapping[str, Any]


class ConfigLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the configuration, redacted if it derives from a Secret."""

    line: int
    text: str
    made_by: str = ""
    """The object that produced the line, if any."""
    is_secret: bool = False


class ConfigPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a file, or of the lines that match a search."""

    path: str
    serial: int
    """Serial number of the render."""
    total: int
    """Number of lines, or of matching lines."""
    offset: int
    lines: tuple[ConfigLine, ...]
    files: tuple[str, ...] = ()
    """The first files of the configuration."""
    sections: tuple[ConfigLine, ...] = ()
    """The first lines of the first sections."""


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """An added (`+`) or removed (`-`) line."""

    sign: str
    line: int
    text: str
    """At most 1,000 characters of the line, redacted if it derives from a Secret."""
    made_by: str = ""
    """The object that produced the line, if any."""


class DiffPage(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a generation in haproxy.cfg."""

    before: int
    """Number of the former generation; 0 if there is none."""
    after: int
    """Number of the generation."""
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    """The first lines of the difference."""


class GenerationView(msgspec.Struct, frozen=True, kw_only=True):
    """One of the last 20 generations whose haproxy.cfg differs from that of the former one."""

    number: int
    """Counts the generations since the start of the controller."""
    at: float
    """Clock time."""
    correlation: str
    """Its reconciliation."""
    added: int
    removed: int
    objects: tuple[str, ...]
    """The first objects of changed lines."""


class RoutePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of routes, in the order of hosts and paths."""

    serial: int
    """Serial number of the render."""
    total: int
    """Number of routes that match the request."""
    offset: int
    counts: Mapping[str, int]
    """Number of routes that match the search by state, whatever state the request names."""
    routes: tuple[Route, ...]


class CertificatePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of certificates, those that expire first at the beginning."""

    serial: int
    """Serial number of the render."""
    total: int
    offset: int
    certificates: tuple[ServedCertificate, ...]


class ProblemList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `GET /api/v1/problems`."""

    objects: ObjectProblems
    """Quarantined objects and warnings about objects."""
    inputs: Mapping[str, tuple[str, ...]]
    """Problems of inputs, by source."""


class InstanceList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `GET /api/v1/instances`."""

    instances: tuple[InstanceView, ...]
    fleet: Any
    """As in `State`."""
    now: Moment
    """To convert clock times."""


class ChangeList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `GET /api/v1/changes`."""

    changes: tuple[CycleView, ...]
    """The latest reconciliations, oldest first."""
    now: Moment
    """To convert clock times."""


class LiveView(msgspec.Struct, frozen=True, kw_only=True):
    """Live figures of the instances that answer: those of this machine, and those behind agents."""

    processes: tuple[ProcessFigures, ...]
    backends: tuple[BackendFigures, ...]
    """Those of the request that exist."""
