"""Decision of a Lease election, without clock, socket or task.

A holder trusts its lease for the *renew deadline* from the moment at which it
sent the write that succeeded last. Others take it over when they have not
seen it change for its whole *duration*, which is longer. Every write names
the version that it replaces. So a replica that takes the lease has seen the last
renewal after the server stored it, and thus after it was sent: the previous
holder has given up by then. No two clocks are compared; they only have to run
about equally fast (by default within a fifth of each other).
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from haptic_trio.k8s.resource import Resource, version_of


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds: `retry_period` < `renew_deadline` < `duration`."""

    duration: float = 15.0
    """Others take the lease over when they have not seen it change for this long."""
    renew_deadline: float = 10.0
    """The holder gives it up when it could not renew it for this long."""
    retry_period: float = 2.0
    """From one renewal to the next, and from a failed attempt to the next."""


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease as the server has it."""

    resource: Resource
    version: str
    holder: str
    """Identity; empty when it was released."""
    duration: float
    """Seconds; 0 when it does not say."""
    transitions: int
    """Number of changes of the holder."""


def view_of(resource: Resource) -> LeaseView:
    """Return the fields of *resource*, a Lease; missing fields and invalid numbers count as empty."""
    spec = resource.get("spec") or {}
    return LeaseView(
        resource=resource,
        version=version_of(resource),
        holder=str(spec.get("holderIdentity") or ""),
        duration=float(_number(spec.get("leaseDurationSeconds"))),
        transitions=int(_number(spec.get("leaseTransitions"))),
    )


class Bid(msgspec.Struct, frozen=True, kw_only=True):
    """A write that would acquire or renew the lease."""

    base: LeaseView | None
    """The Lease that it replaces; None: it creates the Lease."""
    spec: Mapping[str, Any]
    """Without the times."""
    is_renewal: bool
    started: float
    renew_deadline: float


class Election:
    """One candidate. Times are seconds of its own monotonic clock, in ascending order."""

    def __init__(self, identity: str, settings: LeaseSettings) -> None:
        """*identity* must be of this run of this process alone."""
        self.identity = identity
        self._settings = settings
        self._seen: LeaseView | None = None
        self._has_looked = False
        self._seen_at = -math.inf
        self._held_until = -math.inf
        self._earliest = -math.inf
        self.must_read = True
        """The lease has to be read before the next bid: it is not known, or not known whether a bid has succeeded."""

    @property
    def held_until(self) -> float:
        """When the lease is lost unless it is renewed."""
        return self._held_until

    @property
    def holder(self) -> str:
        """The last observed holder of the lease; empty without a holder."""
        return self._seen.holder if self._seen is not None else ""

    @property
    def transitions(self) -> int:
        """Number of changes of the holder."""
        return self._seen.transitions if self._seen is not None else 0

    @property
    def lease(self) -> LeaseView | None:
        """The lease as last seen."""
        return self._seen

    def is_held(self, now: float) -> bool:
        """Whether this replica certainly holds the lease."""
        return now < self._held_until

    def change_settings(self, settings: LeaseSettings, now: float) -> None:
        """Use *settings* from the next bid on, which a holder makes at once."""
        if settings == self._settings:
            return
        self._settings = settings
        if self.is_held(now):
            self._earliest = now

    def observe(self, lease: LeaseView | None, now: float) -> None:
        """Take in the lease as read from the server; None: there is none."""
        self.must_read = False
        is_known = self._has_looked and _version_of(lease) == _version_of(self._seen)
        self._has_looked = True
        self._seen = lease
        if not is_known:
            self._seen_at = now
        if self.holder != self.identity:
            self._held_until = -math.inf

    def update(self, lease: LeaseView | None, now: float) -> None:
        """Update from a watch event, which may be late, and for a holder older than its own last write."""
        if not self.is_held(now):
            self.observe(lease, now)
        elif lease is None or lease.holder != self.identity:
            self.must_read = True
            self._earliest = now

    def next_bid(self) -> float:
        """Return when to bid, or to look; a time in the past means now."""
        if self.must_read or self.holder in {"", self.identity}:
            return self._earliest
        assert self._seen is not None
        # The duration of the holder, whose settings may differ.
        duration = self._seen.duration or self._settings.duration
        return max(self._earliest, self._seen_at + duration)

    def bid(self, now: float) -> Bid | None:
        """Return the write to try now; None while another replica holds the lease."""
        if self.must_read or now < self.next_bid():
            return None
        settings, base = self._settings, self._seen
        is_renewal = base is not None and base.holder == self.identity
        self._earliest = now + settings.retry_period
        # The server may carry it out, and the answer be lost: then others count from now on with the new duration.
        self._held_until = min(self._held_until, now + settings.renew_deadline)
        is_first = base is None or (not base.holder and not base.transitions and not base.duration)
        return Bid(
            base=base,
            spec={
                "holderIdentity": self.identity,
                "leaseDurationSeconds": max(1, math.ceil(settings.duration)),
                "leaseTransitions": self.transitions + (0 if is_renewal or is_first else 1),
            },
            is_renewal=is_renewal,
            started=now,
            renew_deadline=settings.renew_deadline,
        )

    def succeed(self, bid: Bid, stored: LeaseView, now: float) -> None:
        """The server has carried out *bid*, and this is the lease now."""
        self.observe(stored, now)
        if stored.holder == self.identity:
            self._held_until = bid.started + bid.renew_deadline

    def fail(self, now: float) -> None:
        """A bid or a read failed, or its result is unknown: the lease must be read again."""
        self.must_read = True
        self._earliest = now + self._settings.retry_period

    def retry(self, now: float) -> None:
        """Make a failed attempt again at once: the server answers again."""
        if self.must_read:
            self._earliest = min(self._earliest, now)

    def collide(self) -> None:
        """The lease was another one than the bid said; read it now."""
        self.must_read = True

    def give_up(self) -> None:
        """Hold the lease no longer; what the server has is another matter."""
        self._held_until = -math.inf


def released_spec(lease: LeaseView) -> dict[str, Any]:
    """Return the spec of *lease* after its release."""
    return {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": lease.transitions}


def _version_of(lease: LeaseView | None) -> str | None:
    return None if lease is None else lease.version


def _number(value: object) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else 0
