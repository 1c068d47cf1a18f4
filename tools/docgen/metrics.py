"""The reference of all metrics as Markdown, made from the registry: `python -m tools.docgen.metrics`.

With a path as argument, replaces everything below the marker line of that
file; without one, prints the reference to standard output.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from haptic_trio.cli.serving import probes
from haptic_trio.metrics import BUILD_INFO, PREFIX, Family, Metrics
from haptic_trio.telemetry.accounts import OLDEST_CHANGE, PROBLEMS, SLOWED_NAMESPACES
from haptic_trio.webhook.metrics import WebhookMetrics
from haptic_trio.workqueue.metrics import WorkQueueMetrics
from tools.docgen.configuration import replace_below

MARKER: Final = "<!-- Below this line the page is made from the code: python -m tools.docgen.metrics FILE -->"

_PROCESS: Final = (
    Family("process_cpu_seconds_total", "counter", "CPU time of the controller, in user and kernel mode."),
    Family("process_max_fds", "gauge", "File descriptors that the controller may open."),
    Family("process_open_fds", "gauge", "File descriptors that the controller has open."),
    Family("process_resident_memory_bytes", "gauge", "Memory of the controller."),
    Family("process_start_time_seconds", "gauge", "When the controller was started, in seconds since 1970."),
    Family("process_virtual_memory_bytes", "gauge", "Address space of the controller."),
)


def all_families() -> tuple[Family, ...]:
    """Return every metric that `serve` exports, by name."""
    made = Metrics(CollectorRegistry()).families
    WebhookMetrics(made)
    queues = WorkQueueMetrics(CollectorRegistry()).families
    read = [value for value in vars(probes).values() if isinstance(value, Family)]
    known = (*made.known, *queues.known, *read, *_PROCESS, BUILD_INFO, OLDEST_CHANGE, PROBLEMS, SLOWED_NAMESPACES)
    return tuple(sorted(known, key=lambda family: family.name))


def reference() -> str:
    """Return the Markdown text: a table of our own metrics, then one of those that follow other names."""
    families = all_families()
    own = [family for family in families if family.name.startswith(PREFIX)]
    queues = [family for family in families if family.name.startswith(("workqueue_", "controller_"))]
    process = [family for family in families if family.name.startswith("process_")]
    parts = (("Controller", own), ("Work queues", queues), ("Process (Linux)", process))
    assert sum(len(part) for _, part in parts) == len(families)
    return "\n".join(line for title, part in parts for line in _section(title, part))


def _section(title: str, families: Sequence[Family]) -> Iterable[str]:
    yield from (f"## {title}", "", "| Metric | Type | Labels | Meaning |", "|---|---|---|---|")
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.text} |"
    yield ""


def write_reference(page: Path) -> None:
    """Replace what stands below the marker line in *page*; raises `ValueError` where there is no marker."""
    replace_below(page, MARKER, reference())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_reference(Path(sys.argv[1]))
    else:
        sys.stdout.write(reference())
