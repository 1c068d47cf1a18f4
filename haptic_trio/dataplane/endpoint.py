"""What deployment needs from one HAProxy, however it is reached."""

from typing import Protocol

import msgspec

from haptic_trio.errors import HapticError
from haptic_trio.haproxy.capabilities import Capabilities
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.operations import Plan


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


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one deployment to one endpoint did."""

    endpoint: str
    changed: bool
    """False when the endpoint already ran the generation: nothing was written."""
    reloaded: bool
    reasons: tuple[str, ...] = ()
    """Why it reloaded."""
    operations: int = 0
    """Runtime operations applied."""
    seconds: float = 0.0


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

    async def activate(self, generation: Generation) -> None:
        """Stage, check, switch, and (re)load HAProxy; on refusal everything is as before."""
        ...

    async def patch(self, generation: Generation, plan: Plan) -> None:
        """Apply the runtime operations of *plan* and make *generation* the one on disk, without a reload.

        When an operation is refused the endpoint is left on its former
        files, and the error says so; the caller activates instead.
        """
        ...
