"""Progress of the first load of `serve`: what the start does now."""

from collections.abc import Callable
from typing import Final

import msgspec

from haptic_trio import messages as m
from haptic_trio.cli.output.progress import Steps

_ENDS: Final = (
    *(m.ConfigPrepared, m.ConfigValidated, m.ValidationFailed, m.ReconcileFailed),
    *(m.ConfigInvalid, m.IterationEnded),
)
"""Events after which the log says what goes on."""
_AFTER: Final = {
    "load_config": "compiling the templates",
    "components": "reading objects",
    "watch_resources": "starting",
}
"""The step that follows each stage."""


class StartSteps:
    """An observer of events that shows the steps of the start in *steps*, and calls *end* once, when it is over."""

    def __init__(self, steps: Steps, end: Callable[[], None]) -> None:
        self._steps = steps
        self._end = end
        self._is_over = False

    def take(self, event: msgspec.Struct) -> None:
        """Show the step that follows *event*."""
        if self._is_over:
            return
        match event:
            case m.StageReached(name=name) if name in _AFTER:
                self._steps.begin(_AFTER[name])
            case m.LeadershipChanged():
                self._steps.begin("loading the configuration")
            case m.ReconcileStarted():
                self._steps.begin("rendering")
            case _ if isinstance(event, _ENDS):
                self._is_over = True
                self._end()
