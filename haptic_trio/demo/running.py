"""Handle of the running demo."""

import msgspec

from haptic_trio.cli.serve import Serving
from haptic_trio.demo.event_log import EventLog
from haptic_trio.demo.site import DemoSite


class RunningDemo(msgspec.Struct, frozen=True, kw_only=True):
    """The running demo."""

    site: DemoSite
    serving: Serving
    events: EventLog

    async def count_reloads(self) -> int:
        """Return the number of reloads that the HAProxy processes report."""
        endpoints = self.serving.process.endpoints.value or ()
        return sum([(await endpoint.describe()).reloads for endpoint in endpoints])

    @property
    def iteration(self) -> int:
        """Number of the running iteration; 0 between two iterations."""
        state = self.serving.process.running.value
        return state.number if state is not None else 0
