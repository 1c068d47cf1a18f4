"""Handle of the running demo."""

import msgspec

from haptic_trio.cli.serve import Serving
from haptic_trio.demo.facts import FactLog
from haptic_trio.demo.site import DemoSite


class RunningDemo(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to look at and to change."""

    site: DemoSite
    serving: Serving
    facts: FactLog

    async def count_reloads(self) -> int:
        """Return how often the HAProxy processes were reloaded, as they count it themselves."""
        endpoints = self.serving.process.endpoints.value or ()
        return sum([(await endpoint.describe()).reloads for endpoint in endpoints])

    @property
    def iteration(self) -> int:
        """Number of the iteration that runs; 0 between two."""
        state = self.serving.process.running.value
        return state.number if state is not None else 0
