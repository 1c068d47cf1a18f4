"""Where the time of one change went, as the controller's own log tells it."""

from collections.abc import Sequence

import msgspec

from rig.controller import Line

DEPLOYED = frozenset({"instance started", "instance reloaded", "instance updated without reload"})


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds. A change that takes several cycles has the sum of them."""

    notice: float = 0.0
    """From the save to the first trigger (or, for a ConfigMap, to its acceptance)."""
    reopen: float = 0.0
    """Closing an iteration and opening the next one, up to its fifth stage."""
    render: float = 0.0
    parse: float = 0.0
    check: float = 0.0
    deploy: float = 0.0
    cycles: float = 0.0
    """How many render-and-validate cycles there were."""


def read_phases(lines: Sequence[Line], saved: float) -> Phases:
    """Return where the time went according to *lines*, what was logged since *saved*, seconds since the epoch."""
    heard = [line.at for line in lines if line.event in {"configuration changed", "reconciliation triggered"}]
    accepted = [line.at for line in lines if line.event == "configuration changed"]
    opened = [line.at for line in lines if line.event == "stage reached" and line.fields["stage"] == 5]
    valid = [line.fields for line in lines if line.event == "configuration validated"]
    return Phases(
        notice=1000 * (heard[0] - saved) if heard else 0.0,
        reopen=1000 * (opened[0] - accepted[0]) if opened and accepted else 0.0,
        render=sum(fields["render_ms"] for fields in valid),
        parse=sum(fields["parse_ms"] for fields in valid),
        check=sum(fields["check_ms"] for fields in valid),
        deploy=sum(line.fields["ms"] for line in lines if line.event in DEPLOYED),
        cycles=float(len(valid)),
    )
