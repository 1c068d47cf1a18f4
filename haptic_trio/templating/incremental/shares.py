"""Shares of a namespace: limits on the output and check cost that its objects may use together, and its CPU time."""

from operator import add, sub
from typing import Final, NamedTuple, TypeAlias

from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.questions import Question
from haptic_trio.templating.incremental.settling.overall_rounds import OverallRounds
from haptic_trio.templating.values.limits import LimitReachedError, RenderLimits
from haptic_trio.templating.values.subjects import FragmentKey


class Uses(NamedTuple):
    """Amounts that an output of a fragment uses of each resource."""

    bytes: int = 0
    servers: int = 0
    certificates: int = 0
    table_entries: int = 0
    rounds: int = 0


NO_USES: Final = Uses()
_EMPTY: Final = FragmentOutput("", (), "")
LEAST_SPENT: Final = 0.02
"""CPU seconds of a fragment that count for its namespace. Most fragments take a tenth of that."""

Claimed: TypeAlias = dict[str, tuple[int, ...]]
"""By namespace: what a unit uses more than when it was last rendered."""


class _Resource(NamedTuple):
    limit: int
    excess: str
    hint: str


class NamespaceShares:
    """Counts what outputs of fragments use by namespace. Objects without one are the administrator's: no limit."""

    def __init__(self, limits: RenderLimits) -> None:
        # In the order of the fields of `Uses`.
        self._resources = (
            _Resource(
                limits.namespace_bytes,
                f"grew beyond {limits.namespace_bytes:,} bytes",
                "use fewer or smaller objects in this namespace, or raise templating.maxNamespaceBytes",
            ),
            _Resource(
                limits.namespace_servers,
                f"has more than {limits.namespace_servers:,} servers",
                "use fewer ports or endpoints in this namespace, or TLS for fewer of them (a server with TLS counts as"
                " ten or more), or raise templating.maxNamespaceServers",
            ),
            _Resource(
                limits.namespace_certificates,
                f"has more than {limits.namespace_certificates:,} certificate lines",
                "use fewer certificates, listeners or CA certificates in this namespace, or raise"
                " templating.maxNamespaceCertificateLines",
            ),
            _Resource(
                limits.namespace_table_entries,
                f"has stick tables of more than {limits.namespace_table_entries:,} entries",
                "use fewer Ingresses with rate limits or smaller tables in this namespace, or raise"
                " templating.maxNamespaceTableEntries",
            ),
            _Resource(
                limits.namespace_rounds,
                f"has password hashes of more than {limits.namespace_rounds:,} rounds",
                "use fewer users, fewer lists of users or fewer rounds in this namespace, or raise"
                " templating.maxNamespaceHashRounds",
            ),
        )
        self.overall = OverallRounds(limits.total_rounds)
        self.spent: dict[str, float] = {}
        """By namespace, the CPU seconds that costly fragments of its objects took in the newest render."""
        self._held: Claimed = {}
        self._newest = _EMPTY, NO_USES
        self._freed: set[str] = set()
        self._before: Claimed = {}
        """Amounts by namespace when the render before ended."""

    def take_over(self, former: "NamespaceShares") -> None:
        """Begin with what is used in *former*, which has the same limits."""
        self._held = dict(former._held)  # noqa: SLF001  the two are of one class
        self.overall = former.overall.copied()

    def restart(self) -> None:
        """Begin another render."""
        self.overall.restart()
        self.spent.clear()

    def spend(self, namespace: str, seconds: float) -> None:
        """Record that a fragment of *namespace* took *seconds* of CPU time."""
        if seconds >= LEAST_SPENT:
            self.spent[namespace] = self.spent.get(namespace, 0.0) + seconds

    def claim(
        self,
        key: FragmentKey,
        before: FragmentOutput | None,
        after: FragmentOutput,
        claimed: Claimed,
        *,
        is_closing: bool = False,
    ) -> None:
        """Add to *claimed* what *after* uses more than *before*.

        Raises `LimitReachedError`, and adds nothing, if the namespace of *key* has no room for it, or all together.
        With *is_closing* the output is the text for a rejected object, and does not count as its demand.
        """
        namespace, uses = key.namespace, self.uses_of(after)
        former = self.uses_of(before) if before is not None else NO_USES
        known: tuple[int, ...] = claimed.get(namespace, NO_USES)
        wanted = known
        if uses != former:
            more = tuple(map(sub, uses, former))
            wanted = tuple(map(add, known, more))
            if namespace:
                held = self._held.get(namespace, NO_USES)
                for resource, one, together in zip(self._resources, more, map(add, held, wanted), strict=True):
                    if one > 0 and together > resource.limit:
                        # It may be served by what it has.
                        kept = (before.original or before).rounds if before is not None else 0
                        self.overall.keep(key, kept, after.resource)
                        raise LimitReachedError(
                            f"the output of all objects of the namespace {namespace} {resource.excess}", resource.hint
                        )
        if namespace and not is_closing:
            self.overall.claim(key, after.rounds, after.resource)
        if wanted is not known:
            claimed[namespace] = wanted

    def change(self, key: FragmentKey, before: FragmentOutput | None, after: FragmentOutput | None) -> None:
        """Record that the output of the fragment *key* changed from *before* to *after*."""
        uses = self.uses_of(after) if after is not None else NO_USES
        former = self.uses_of(before) if before is not None else NO_USES
        if uses != former:
            difference = tuple(map(sub, uses, former))
            self._held[key.namespace] = tuple(map(add, self._held.get(key.namespace, NO_USES), difference))
            if min(difference) < 0:
                self._freed.add(key.namespace)
        if after is None:
            self.overall.drop(key)
        self.overall.add(key, added_rounds(after))

    def uses_of(self, output: FragmentOutput) -> Uses:
        """Return what *output* uses; known for the newest one, about which a render asks several times."""
        if self._newest[0] is not output:
            self._newest = output, _uses_of(output)
        return self._newest[1]

    def finish(self) -> None:
        """Note that a render ends."""
        self._before = dict(self._held)

    def take_freed(self) -> list[tuple[Question, bool]]:
        """Return the questions of fragments that may find room now; each namespace is returned once.

        With each, whether the namespace uses less than when the render before ended. If not, a fragment has found no
        room and given up what others of its object used: there is hardly more room than for all of them before.
        """
        freed, self._freed = self._freed, set()
        return [(question_of(namespace), self._uses_less(namespace)) for namespace in sorted(freed)]

    def _uses_less(self, namespace: str) -> bool:
        before = self._before.get(namespace)
        now = self._held.get(namespace, NO_USES)
        return before is None or any(one < other for one, other in zip(now, before, strict=True))


def added_rounds(output: FragmentOutput | None) -> int:
    """Return how many more rounds *output* has than the good one that it is a revision of, if it is one."""
    return max(output.rounds - output.original.rounds, 0) if output is not None and output.original is not None else 0


def _uses_of(output: FragmentOutput) -> Uses:
    if not (output.text or output.files or output.rounds or output.certificates):
        # Half of all outputs.
        return NO_USES
    return Uses(output.size, output.servers, output.certificates, output.table_entries, output.rounds)


def question_of(namespace: str) -> Question:
    """Return the question of a fragment that found no room in *namespace*."""
    return "room", namespace
