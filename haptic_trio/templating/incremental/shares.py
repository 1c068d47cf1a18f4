"""Shares of a namespace: limits on the output and check cost that its objects may use together."""

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.overall_rounds import OverallRounds
from haptic_trio.templating.incremental.questions import Dependency
from haptic_trio.templating.values.limits import LimitReachedError, RenderLimits
from haptic_trio.templating.values.subjects import FragmentKey

Claim = tuple[str, str]
"""A namespace, and the name of a resource."""


class _Resource(NamedTuple):
    name: str
    used_by: Callable[[FragmentOutput], int]
    limit: int
    excess: str
    hint: str


class NamespaceShares:
    """Counts what outputs of fragments use by namespace. Objects without one are the administrator's: no limit."""

    def __init__(self, limits: RenderLimits) -> None:
        self._resources = (
            _Resource(
                "bytes",
                attrgetter("size"),
                limits.namespace_bytes,
                f"grew beyond {limits.namespace_bytes:,} bytes",
                "use fewer or smaller objects in this namespace, or raise templating.maxNamespaceBytes",
            ),
            _Resource(
                "servers",
                attrgetter("servers"),
                limits.namespace_servers,
                f"has more than {limits.namespace_servers:,} servers",
                "use fewer ports or endpoints in this namespace, or TLS for fewer of them (a server with TLS counts as"
                " ten or more), or raise templating.maxNamespaceServers",
            ),
            _Resource(
                "certificates",
                attrgetter("certificates"),
                limits.namespace_certificates,
                f"has more than {limits.namespace_certificates:,} certificate lines",
                "use fewer certificates, listeners or CA certificates in this namespace, or raise"
                " templating.maxNamespaceCertificateLines",
            ),
            _Resource(
                "table entries",
                attrgetter("table_entries"),
                limits.namespace_table_entries,
                f"has stick tables of more than {limits.namespace_table_entries:,} entries",
                "use fewer Ingresses with rate limits or smaller tables in this namespace, or raise"
                " templating.maxNamespaceTableEntries",
            ),
            _Resource(
                "rounds",
                attrgetter("rounds"),
                limits.namespace_rounds,
                f"has password hashes of more than {limits.namespace_rounds:,} rounds",
                "use fewer users, fewer lists of users or fewer rounds in this namespace, or raise"
                " templating.maxNamespaceHashRounds",
            ),
        )
        self.overall = OverallRounds(limits.total_rounds)
        self._held: Counter[Claim] = Counter()
        self._freed: set[str] = set()

    def take_over(self, former: "NamespaceShares") -> None:
        """Begin with what is used in *former*, which has the same limits."""
        self._held = Counter(former._held)  # noqa: SLF001  the two are of one class
        self.overall = former.overall.copied()

    def claim(
        self,
        key: FragmentKey,
        before: FragmentOutput | None,
        after: FragmentOutput,
        claimed: Counter[Claim],
        *,
        is_closing: bool = False,
    ) -> None:
        """Add to *claimed* what *after* uses more than *before*.

        Raises `LimitReachedError`, and adds nothing, if the namespace of *key* has no room for it, or all together.
        With *is_closing* the output is the text for a rejected object, and does not count as its demand.
        """
        wanted: dict[Claim, int] = {}
        for resource in self._resources:
            place = key.namespace, resource.name
            more = resource.used_by(after) - (resource.used_by(before) if before else 0)
            if key.namespace and more > 0 and self._held[place] + claimed[place] + more > resource.limit:
                self.overall.drop(key)
                raise LimitReachedError(
                    f"the output of all objects of the namespace {key.namespace} {resource.excess}", resource.hint
                )
            wanted[place] = more
        if key.namespace and not is_closing:
            self.overall.claim(key, after.rounds, after.resource)
        claimed.update(wanted)

    def change(self, key: FragmentKey, before: FragmentOutput | None, after: FragmentOutput | None) -> None:
        """Record that the output of the fragment *key* changed from *before* to *after*."""
        for resource in self._resources:
            difference = (resource.used_by(after) if after else 0) - (resource.used_by(before) if before else 0)
            self._held[key.namespace, resource.name] += difference
            if difference < 0:
                self._freed.add(key.namespace)
        if after is None:
            self.overall.drop(key)

    def take_freed(self) -> list[Dependency]:
        """Return the questions of fragments that may find room now; each namespace is returned once."""
        freed, self._freed = self._freed, set()
        return [question_of(namespace) for namespace in sorted(freed)]


def question_of(namespace: str) -> Dependency:
    """Return the question of a fragment that found no room in *namespace*."""
    return "room", namespace
