"""Wire protocol of the console; its JSON form is stable.

Times are seconds of the controller's own clock; `clock` and `unix` of a
`Moment` are the same instant, so that a reader can tell the time of day.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

PROTOCOL = 1
"""Grows when something that was there changes its meaning or goes; additions do not count."""


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
    """A task and what it has opened."""

    name: str
    place: str = ""
    """Where our own code waits, as `module:line function`."""
    waits_for: str = ""
    """The innermost call, such as `MemoryReceiveChannel.receive`."""
    nurseries: tuple[NurseryView, ...] = ()
    left_out: int = 0
    """Tasks below it that are not shown, because there are too many."""


class TaskTree(msgspec.Struct, frozen=True, kw_only=True):
    """All tasks of the process, from the root on."""

    root: TaskView
    shown: int
    total: int


class ChannelView(msgspec.Struct, frozen=True, kw_only=True):
    """A channel, or a cell that keeps the newest value alone."""

    name: str
    kind: str
    """`channel` or `latest`."""
    used: int
    size: int
    high: int
    """The most that was found in it since somebody looks at it."""
    senders: int = 0
    receivers: int = 0
    waiting_senders: int = 0
    waiting_receivers: int = 0
    puts: int = 0
    """Of a cell: how many values there have been."""


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """The watched objects of one kind."""

    name: str
    objects: int
    version: int
    """Grows with each visible change."""


class StageView(msgspec.Struct, frozen=True, kw_only=True):
    """A startup stage that was reached."""

    stage: int
    name: str
    seconds: float
    """Since the iteration was opened."""


class CycleView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reconciliation, as far as it has come. Times are clock times, durations seconds."""

    correlation: str
    reason: str = ""
    changes: int = 0
    seen: float | None = None
    """When the first of its changes came; debounced until it was triggered."""
    triggered: float | None = None
    started: float | None = None
    render: float = 0.0
    parse: float = 0.0
    check: float = 0.0
    rendered: int = 0
    """Fragments."""
    reused: int = 0
    deploy_started: float | None = None
    deploy_seconds: float | None = None
    outcome: str = ""
    """Empty while it runs; else an outcome, or `failed in` a phase."""
    ended: float | None = None


class InstanceView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An HAProxy that is deployed to."""

    name: str
    generation: str = ""
    """Of the newest deployment that it took."""
    correlation: str = ""
    at: float | None = None
    """Clock time of that, or of the failure."""
    seconds: float = 0.0
    operations: int = 0
    reloaded: bool = False
    reasons: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    """What it holds back until it may reload."""
    error: str = ""
    """Why the newest deployment failed; empty when it did not."""


class ComponentView(msgspec.Struct, frozen=True, kw_only=True):
    """A component's sign of life."""

    name: str
    busy: bool
    stalled: bool
    detail: str


class IterationView(msgspec.Struct, frozen=True, kw_only=True):
    """The iteration that runs."""

    number: int
    opened: float
    stage: int
    is_ready: bool
    config_version: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is small."""

    iteration: IterationView | None
    """None between two."""
    stages: tuple[StageView, ...]
    is_leader: bool
    identity: str
    components: tuple[ComponentView, ...]
    instances: tuple[InstanceView, ...]
    fleet: Any
    """As `haptic-trio fleet list --output json` tells it; null where somebody else makes the instances."""
    cycles: tuple[CycleView, ...]
    """The oldest first."""
    fragments_rendered: int
    fragments_reused: int
    """Sums over the cycles that are known."""
    quarantined: int
    problems: Mapping[str, tuple[str, ...]]
    """What is wrong with inputs, by source."""


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was told."""

    number: int
    """Counts all of them from 1 on."""
    at: float
    kind: str
    correlation: str
    level: str
    text: str
    fields: Mapping[str, Any]


class ConfigLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the configuration, in a form that may be shown."""

    line: int
    text: str
    made_by: str = ""
    """The object, where one made it."""
    is_secret: bool = False


class ConfigPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file, or of the lines in it that were searched for."""

    path: str
    serial: int
    """Of the rendering."""
    total: int
    """Lines, or lines found."""
    offset: int
    lines: tuple[ConfigLine, ...]
    files: tuple[str, ...] = ()
    """What else there is; the first of them."""
    sections: tuple[ConfigLine, ...] = ()
    """Where sections begin; the first of them."""


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that came (`+`) or went (`-`)."""

    sign: str
    line: int
    text: str


class DiffPage(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the newest configuration and the one that was seen before it."""

    before: int
    """Serial; 0 where none was seen."""
    after: int
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    """The first of them."""
