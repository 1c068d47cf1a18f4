"""Contract of an endpoint: the operations that deployment needs from one HAProxy."""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from haptic_trio.errors import HapticError
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Plan

_NAMED_ADDRESSES: Final = 5


class EndpointError(HapticError):
    """An endpoint could not do what it was asked; the subclass says whether trying again helps."""

    def __init__(self, endpoint: str, message: str) -> None:
        self.endpoint = endpoint
        super().__init__(f"{endpoint}: {message}")


class EndpointUnreachableError(EndpointError):
    """The endpoint does not answer; trying again later is fine."""


class EndpointTimeoutError(EndpointError):
    """The endpoint took too long; trying again later is fine."""


class DeploymentRefusedError(EndpointError):
    """The endpoint's HAProxy refused the generation and runs what it ran before; trying the same again is futile."""


class UnboundAddress(msgspec.Struct, frozen=True, order=True):
    """An address that HAProxy was to listen on and cannot."""

    host: str
    """An IP address; `0.0.0.0` and `::` are all addresses."""
    port: int
    reason: str
    """As the operating system says it, such as `Address already in use`."""

    def __str__(self) -> str:
        return f"cannot bind {self.host}:{self.port}: {self.reason}"


class PortsUnavailableError(DeploymentRefusedError):
    """HAProxy cannot listen where the generation says; trying again helps once *addresses* are free."""

    def __init__(self, endpoint: str, addresses: tuple[UnboundAddress, ...], *, then: str = "") -> None:
        self.addresses = addresses
        named = "; ".join(map(str, addresses[:_NAMED_ADDRESSES]))
        more = f"; and {len(addresses) - _NAMED_ADDRESSES} more" if len(addresses) > _NAMED_ADDRESSES else ""
        super().__init__(endpoint, named + more + then)


class PatchRefusedError(EndpointError):
    """A runtime operation was refused; the files are the former ones, so activate instead of patching again."""


class EndpointStorageError(EndpointError):
    """The endpoint could not read or write its files; trying again helps once the disk has been seen to."""


class EndpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint says about itself."""

    name: str
    version: str
    """HAProxy's version, such as `2.8.25`."""
    generation: str
    """Id of the generation that it runs; empty before the first."""
    reloads: int = 0
    """Reloads since the HAProxy process was started, as it counts them itself."""
    pid: int = 0
    """The HAProxy master process; 0 when none runs."""
    capabilities: Capabilities = Capabilities()
    """What the running process can be told without a reload."""


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan for an endpoint is made from."""

    running: Generation | None
    """As `Endpoint.fetch_running` returns it."""
    capabilities: Capabilities = Capabilities()
    """What the running process can be told without a reload."""


class DriftReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a process differed from what its endpoint last deployed, and what was done about that."""

    found: Mapping[str, int] = {}
    """How many things differed, by kind: a value of `haptic_trio.haproxy.runtime.differences.Kind`."""
    operations: int = 0
    """Runtime operations that put them right."""
    reasons: tuple[str, ...] = ()
    """What no runtime operation can put right: the caller activates the generation that it wants."""


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one deployment to one endpoint did."""

    endpoint: str
    changed: bool
    """False when the endpoint already ran the generation, and nothing differed: nothing was written."""
    reloaded: bool
    reasons: tuple[str, ...] = ()
    """Why it reloaded."""
    held: tuple[str, ...] = ()
    """Why what it holds back needs a reload that it may not make; empty when it runs all of the generation."""
    operations: int = 0
    """Runtime operations applied; a change that reloads may have had some before."""
    drift: Mapping[str, int] = {}
    """What somebody else had changed and was put right, as in `DriftReport.found`."""
    seconds: float = 0.0
    surveyed: float = 0.0
    """Seconds from the start until it was known what runs."""
    planned: float = 0.0
    """Seconds from the start until there was a plan."""


class Endpoint(Protocol):
    """One HAProxy. Calls for the same endpoint are serialised by the caller."""

    @property
    def name(self) -> str:
        """Unique and stable, such as `local-1`."""
        ...

    async def describe(self) -> EndpointInfo:
        """Ask the endpoint for its present state."""
        ...

    async def fetch_running(self) -> Generation | None:
        """Return the generation that the running process has, runtime changes included.

        None before the first, and when nobody can know: after an interrupted
        deployment. Either way only a load makes it known again.
        """
        ...

    async def survey(self) -> Survey:
        """Return what `fetch_running` does, and what the process can be told."""
        ...

    async def activate(self, generation: Generation) -> None:
        """Stage, check, switch, and (re)load HAProxy; on refusal everything is as before."""
        ...

    async def patch(self, generation: Generation, plan: Plan) -> None:
        """Apply the runtime operations of *plan* and make *generation* the one on disk, without a reload.

        When an operation is refused the endpoint is left on its former
        files, and the error says so; the caller activates instead.
        """
        ...

    async def repair(self) -> DriftReport:
        """Compare the process with the generation that was deployed last, and put right at runtime what differs.

        For what somebody else has done to process or files; what HAProxy
        changes by itself, such as the outcome of a check, is no difference.
        Where nothing differs nothing is written. It never reloads: what only
        a reload puts right is among the report's reasons. An endpoint that
        does not know what should run, or cannot look, reports nothing.
        Raises EndpointError.
        """
        ...
