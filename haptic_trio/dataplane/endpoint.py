"""Contract of an endpoint: the operations that deployment needs from one HAProxy."""

from collections.abc import Mapping
from typing import Annotated, Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from haptic_trio.errors import HapticError
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Plan

NAMED_FILES: Final = 5
"""Limit of file names in a report."""
_NAMED_ADDRESSES: Final = 5
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""A number from another process: metrics and the console can show it."""


class EndpointError(HapticError):
    """A request to an endpoint failed; the subclass says whether a retry helps."""

    def __init__(self, endpoint: str, message: str) -> None:
        self.endpoint = endpoint
        super().__init__(f"{endpoint}: {message}")


class EndpointUnreachableError(EndpointError):
    """The endpoint does not answer; a later retry may help."""


class EndpointTimeoutError(EndpointError):
    """The endpoint exceeded a time limit; a later retry may help."""


class DeploymentRejectedError(EndpointError):
    """HAProxy rejected the generation and runs the previous one; permanent: a retry with the same does not help."""


class UnboundAddress(msgspec.Struct, frozen=True, order=True):
    """An address that HAProxy cannot bind."""

    host: str
    """An IP address; `0.0.0.0` and `::` mean all addresses."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    reason: str
    """Error of the operating system, such as `Address already in use`."""

    def __str__(self) -> str:
        return f"cannot bind {self.host}:{self.port}: {self.reason}"


class PortsUnavailableError(DeploymentRejectedError):
    """HAProxy cannot bind *addresses*; a retry helps once they are free."""

    def __init__(self, endpoint: str, addresses: tuple[UnboundAddress, ...], *, then: str = "") -> None:
        self.addresses = addresses
        named = "; ".join(map(str, addresses[:_NAMED_ADDRESSES]))
        more = f"; and {len(addresses) - _NAMED_ADDRESSES} more" if len(addresses) > _NAMED_ADDRESSES else ""
        super().__init__(endpoint, named + more + then)


class PatchRejectedError(EndpointError):
    """A runtime operation was rejected and the files are unchanged; `activate` helps, another `patch` does not."""


class EndpointStorageError(EndpointError):
    """The endpoint could not read or write its files; a retry helps once the disk is repaired."""


class EndpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Observed state of an endpoint."""

    name: str
    version: str
    """HAProxy's version, such as `2.8.25`."""
    generation: str
    """Id of the running generation; empty before the first."""
    reloads: Count = 0
    """Reloads since the HAProxy process was started, as counted by HAProxy."""
    pid: Count = 0
    """The HAProxy master process; 0 when none runs."""
    old_workers: Count = 0
    """Workers that finish their connections after a reload."""
    capabilities: Capabilities = Capabilities()
    """Runtime changes that the running process supports."""


class ObservedState(msgspec.Struct, frozen=True, kw_only=True):
    """Running generation and capabilities of an endpoint: the input of a plan."""

    running: Generation | None
    """As `Endpoint.fetch_running` returns it."""
    capabilities: Capabilities = Capabilities()
    """Runtime changes that the running process supports."""


class DriftReport(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of a process from the generation that was deployed last, and their repair."""

    found: Mapping[str, Count] = {}
    """Number of differences by kind: a value of `haptic_trio.haproxy.runtime.differences.Kind`."""
    operations: Count = 0
    """Number of runtime operations that repaired them."""
    reasons: tuple[str, ...] = ()
    """Differences that no runtime operation repairs: the caller activates its generation."""


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one deployment to one endpoint."""

    endpoint: str
    changed: bool
    """False if the endpoint already ran the generation without drift: nothing was written."""
    reloaded: bool
    reasons: tuple[str, ...] = ()
    """Why it reloaded."""
    held: tuple[str, ...] = ()
    """Why the changes that the endpoint holds back need a reload; empty if it holds back none."""
    causes: frozenset[str] = frozenset()
    """Namespaces of the changes that `reasons` or `held` are about; see `haptic_trio.haproxy.causes`."""
    affected: frozenset[str] = frozenset()
    """Namespaces of all changes that wait for the reload, or that it has applied; the empty one is among them if they
    must not wait longer than the interval."""
    is_partial: bool = False
    """Whether the endpoint got only a part of the changes that need no reload; the next deployment continues."""
    operations: int = 0
    """Number of runtime operations; also those before a reload."""
    changes: Mapping[str, int] = {}
    """Number of these operations by kind, such as `server added`; without those that repaired drift."""
    drift: Mapping[str, int] = {}
    """Repaired drift, as in `DriftReport.found`."""
    seconds: float = 0.0
    observed: float = 0.0
    """Seconds from the start until the running generation was known."""
    planned: float = 0.0
    """Seconds from the start until the plan was made."""


@runtime_checkable
class ReplacesProcess(Protocol):
    """An endpoint whose former process can be changed while `Endpoint.activate` replaces it."""

    async def patch_former(
        self, running: Generation, generation: Generation, plan: Plan, successor: Generation | None = None
    ) -> None:
        """Apply *plan* to the process that `activate` is about to replace, and that runs *running*.

        To be called while `activate` runs. *successor* is what `activate` was
        called with, with the same change: the new process gets it as well if
        it can be changed in time; otherwise it runs what `activate` was called
        with. If the load is rejected, the former process goes on with the
        change. Raises EndpointError if the process has been replaced already,
        or if the change is not applied.
        """
        ...


@runtime_checkable
class CountsOldWorkers(Protocol):
    """An endpoint that knows how many workers finish their connections after a reload."""

    @property
    def old_workers(self) -> int | None:
        """Their number some seconds ago; None if it is unknown."""
        ...


class Endpoint(Protocol):
    """One HAProxy. Calls for the same endpoint are serialised by the caller."""

    @property
    def name(self) -> str:
        """Unique and stable, such as `local-1`."""
        ...

    async def describe(self) -> EndpointInfo:
        """Observe the endpoint: version, running generation, process, capabilities."""
        ...

    async def fetch_running(self) -> Generation | None:
        """Return the generation of the running process, runtime changes included.

        None before the first, and when it is unknown: after an interrupted
        deployment. In both cases only `activate` makes it known.
        """
        ...

    async def observe(self) -> ObservedState:
        """Return the running generation, as `fetch_running` does, and the capabilities of the process."""
        ...

    async def activate(self, generation: Generation) -> None:
        """Stage, check, switch, and (re)load HAProxy; if that is rejected, everything is as before."""
        ...

    async def patch(self, generation: Generation, plan: Plan) -> None:
        """Apply the runtime operations of *plan* and write *generation* to disk, without a reload.

        Raises PatchRejectedError if an operation is rejected: the files are
        unchanged, and the caller activates instead.
        """
        ...

    async def repair(self) -> DriftReport:
        """Compare the process with the generation that was deployed last, and repair differences at runtime.

        Differences are changes of process or files by others. State that
        HAProxy changes itself, such as the result of a health check, is not
        a difference. Never reloads: differences that need a reload are among
        the reasons of the report. The report is empty if the deployed
        generation is unknown or the process cannot be observed. Raises
        EndpointError.
        """
        ...
