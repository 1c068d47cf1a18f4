"""Schedule of comparisons of an endpoint's process with its deployment; the drift monitor has a schedule of its own."""

from haptic_trio.dataplane.endpoint import Endpoint


class Verification:
    """When each endpoint was verified last; outlives iterations, but not a term of leadership."""

    def __init__(self) -> None:
        self._term = 0
        self._last: dict[str, tuple[Endpoint, float]] = {}

    def begin(self, term: int) -> None:
        """Begin *term*. In another term than before every endpoint is due: another replica may have deployed to it."""
        if term != self._term:
            self._term = term
            self._last.clear()

    def is_due(self, endpoint: Endpoint, now: float, interval: float) -> bool:
        """Whether *endpoint* was not verified in the last *interval* seconds."""
        # An endpoint that was renewed is another object of the same name.
        known, last = self._last.get(endpoint.name, (None, 0.0))
        return known is not endpoint or now - last >= interval

    def record(self, endpoint: Endpoint, began: float) -> None:
        """Record that *endpoint* was verified."""
        self._last[endpoint.name] = endpoint, began

    def forget(self, name: str) -> None:
        """Verify endpoint *name* with its next deployment."""
        self._last.pop(name, None)
