"""Leader election by a Lease: carries out the decisions of `lease_election` at an API server."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from typing import Final, NoReturn, Protocol

import msgspec
import trio

from haptic_trio.errors import HapticError, Problem
from haptic_trio.k8s.client import Client, Listed, NotFoundError, Report, Selection, Upserted, WatchEvent
from haptic_trio.k8s.errors import ConflictError
from haptic_trio.k8s.lease_election import Bid, Election, LeaseSettings, LeaseView, released_spec, view_of
from haptic_trio.k8s.resource import Resource, ResourceType

LEASES: Final = ResourceType("coordination.k8s.io/v1", "leases")
RELEASE_LIMIT: Final = 2.0
"""Seconds that giving the lease back may take."""
SPREAD: Final = 0.2
"""Seconds within which candidates reach for a free lease, so that they seldom collide."""


class LeaseServer(Client, Protocol):
    """Interface of an election to an API server; see `ApiCluster`."""

    async def create(self, resource: Resource) -> Resource:
        """Create *resource*; raises `ConflictError` when it is there."""
        ...

    async def replace(self, resource: Resource) -> Resource:
        """Replace exactly the version in *resource*; raises `ConflictError` when it is another one now."""
        ...

    async def wait_recovered(self) -> None:
        """Return when the next outage of the server has ended."""
        ...


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """State of an election for a candidate."""

    is_leader: bool
    leader: str
    """Last known identity of the holder; empty without a holder."""
    transitions: int


class LeaseElector:
    """A candidate for the Lease *namespace*/*name* that renews it for as long as it holds it.

    The callback of `run` receives each change, and a loss before another replica
    can take the lease. Errors go to *report*; none ends the election.
    """

    def __init__(
        self,
        server: LeaseServer,
        namespace: str,
        name: str,
        *,
        identity: str,
        settings: LeaseSettings,
        report: Report,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._server = server
        self._namespace = namespace
        self._name = name
        self._election = Election(identity, settings)
        self._settings = settings
        self._report = report
        self._problem = ""
        self._spread = spread
        self._reported: Standing | None = None
        self._releases = True
        self._news = trio.Event()

    def change_settings(self, settings: LeaseSettings) -> None:
        """Use other durations; a lease that is held stays so."""
        self._settings = settings
        self._election.change_settings(settings, trio.current_time())
        self._wake()

    def is_held(self) -> bool:
        """Whether this replica holds the lease at this moment, whatever has been published."""
        return self._election.is_held(trio.current_time())

    def abandon(self) -> None:
        """Do not give the lease back at the end: others shall wait until it expires."""
        self._releases = False

    async def run(self, publish: Callable[[Standing], None]) -> NoReturn:
        """Take part until cancelled; then give the lease back, unless it is to be abandoned.

        What depends on the lease must have ended before this is cancelled.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow)
                nursery.start_soon(self._guard, publish)
                nursery.start_soon(self._retry_after_outages)
                while True:
                    while self._election.next_bid() > trio.current_time():
                        await self._wait_news(self._election.next_bid())
                    if not self.is_held():
                        await trio.sleep(SPREAD * self._spread())
                    await self._attempt()
                    self._publish(publish)
                    self._wake()
        finally:
            self._election.give_up()
            self._publish(publish)
            if self._releases:
                with trio.move_on_after(RELEASE_LIMIT, shield=True):
                    await self._release()
        raise AssertionError("the loop ends by an exception")

    async def _follow(self) -> NoReturn:
        selection = Selection(type=LEASES, namespaces=(self._namespace,), field_selector=f"metadata.name={self._name}")
        async with self._server.watch(selection) as events:
            async for event in events:
                self._election.update(_lease_in(event), trio.current_time())
                self._wake()
        # The watch ends with the client, and the client after this.
        await trio.sleep_forever()
        raise AssertionError("never woken")

    async def _guard(self, publish: Callable[[Standing], None]) -> NoReturn:
        """Report a loss when it is due, even while an attempt is in flight, and changes from the watch."""
        while True:
            await self._wait_news(self._election.held_until if self.is_held() else inf)
            self._publish(publish)

    async def _retry_after_outages(self) -> NoReturn:
        """Attempt again as soon as the server answers: after a failure the next attempt is a retry period away."""
        while True:
            await self._server.wait_recovered()
            self._election.retry(trio.current_time())
            self._wake()

    async def _wait_news(self, limit: float) -> None:
        with trio.move_on_at(limit):
            await self._news.wait()

    async def _attempt(self) -> None:
        election = self._election
        # Half of what is left of a lease that was just renewed: one that hangs leaves time for another.
        limit = trio.current_time() + self._settings.renew_deadline / 2
        if self.is_held():
            limit = min(limit, election.held_until)
        with trio.move_on_at(limit) as scope:
            try:
                await self._bid()
            except HapticError as error:
                election.fail(trio.current_time())
                self._report_problem(str(error), getattr(error, "hint", ""))
            else:
                self._report_problem("")
        if scope.cancelled_caught:
            election.fail(trio.current_time())
            self._report_problem("the API server does not answer in time")

    async def _bid(self) -> None:
        election = self._election
        # What collides twice is tried again after the retry period.
        for _ in range(2):
            if election.must_read:
                election.observe(await self._read(), trio.current_time())
            bid = election.bid(trio.current_time())
            if bid is None:
                return
            try:
                stored = await self._write(bid)
            except (ConflictError, NotFoundError):
                election.collide()
            else:
                election.succeed(bid, stored, trio.current_time())
                return
        election.fail(trio.current_time())

    async def _read(self) -> LeaseView | None:
        try:
            return view_of(await self._server.get(LEASES, self._namespace, self._name))
        except NotFoundError:
            return None

    async def _write(self, bid: Bid) -> LeaseView:
        now = _timestamp()
        spec = {**bid.spec, "renewTime": now} | ({} if bid.is_renewal else {"acquireTime": now})
        if bid.base is not None:
            return view_of(await self._server.replace(_with_spec(bid.base, spec)))
        resource: Resource = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        return view_of(await self._server.create(resource))

    async def _release(self) -> None:
        # A renewal that was cut off may have been carried out.
        for _ in range(3):
            try:
                if self._election.must_read:
                    self._election.observe(await self._read(), trio.current_time())
                lease = self._election.lease
                if lease is None or lease.holder != self._election.identity:
                    return
                self._election.must_read = True
                await self._server.replace(_with_spec(lease, {**released_spec(lease), "renewTime": _timestamp()}))
            except ConflictError:
                continue
            except HapticError:
                # The server cannot be reached; the other replicas wait for the whole duration.
                pass
            return

    def _publish(self, publish: Callable[[Standing], None]) -> None:
        election = self._election
        is_leader = election.is_held(trio.current_time())
        standing = Standing(is_leader=is_leader, leader=election.holder, transitions=election.transitions)
        if standing != self._reported:
            self._reported = standing
            publish(standing)

    def _report_problem(self, message: str, hint: str = "") -> None:
        if message != self._problem:
            self._problem = message
            problems = (Problem(message=message, hint=hint),) if message else ()
            self._report(f"Lease {self._namespace}/{self._name}", problems)

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()


def _with_spec(lease: LeaseView, spec: Resource) -> Resource:
    """Return the Lease as it shall be; what else is in it stays, and only the version that was seen is replaced."""
    return {**lease.resource, "spec": {**(lease.resource.get("spec") or {}), **spec}}


def _lease_in(event: WatchEvent) -> LeaseView | None:
    match event:
        case Listed(objects):
            return view_of(objects[0]) if objects else None
        case Upserted(resource):
            return view_of(resource)
        case _:
            return None


def _timestamp() -> str:
    """Return the present time as Kubernetes writes it; for people alone."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
