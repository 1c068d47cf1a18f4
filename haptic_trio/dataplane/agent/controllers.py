"""Detection of two controllers that deploy to one agent in turns."""

from typing import Final

RETURN_WINDOW: Final = 600.0
"""Seconds within which a controller that deploys again after another one is a rival; a failover does not return."""


class Controllers:
    """Controllers that have deployed to this agent; times are seconds of one clock."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        """Time of the last deployment by each controller, the latest one last."""
        self._rivals: tuple[str, str] = "", ""
        self._until = 0.0

    def note(self, controller: str, now: float) -> str:
        """Note a deployment by *controller*; return the controller that deploys in turns with it, or an empty text.

        Controllers without a name, of older versions, are ignored.
        """
        if not controller:
            return ""
        self._last = {name: at for name, at in self._last.items() if now - at < RETURN_WINDOW}
        latest = next(reversed(self._last), controller)
        if latest != controller and controller in self._last:
            self._rivals, self._until = (controller, latest), now + RETURN_WINDOW
        self._last.pop(controller, None)
        self._last[controller] = now
        if now >= self._until or controller not in self._rivals:
            return ""
        return next(name for name in self._rivals if name != controller)
