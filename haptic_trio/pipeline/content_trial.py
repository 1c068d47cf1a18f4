"""Trial of fetched contents: finds the content that makes a configuration invalid, by omission.

Templates get a new content like any other. If the configuration is then
rejected, or fragments fail that did not fail before, all new contents are
withheld and the configuration is made again. If it still fails, the contents
are not at fault and are offered again. If the parser or HAProxy has rejected an
object, whether it still fails is known once they have judged its output without
the new contents: an object that they reject with any contents is quarantined,
and the contents are judged without it. Otherwise, a single withheld content is
at fault; several are offered again one by one, and each is at fault if the
configuration fails with it. The trial does not track where contents are used,
so every validation phase can reject a content.

Tenants share contents. If objects fail or are rejected with a new content, and
objects of as many other namespaces use it without a failure, it is judged
again without the namespaces of the failing ones. An object that reaches a limit with a new content is
quarantined, and the content is used: otherwise a tenant whose namespace has
just enough room for the former keys of an issuer could keep them for all.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum

from haptic_trio.errors import Problem
from haptic_trio.httpstore.content import Content
from haptic_trio.httpstore.contents import Contents
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.values.subjects import FragmentKey, Rejection

_UNKNOWN = Problem(message="the configuration was rejected")


class _Phase(IntEnum):
    NONE = 0
    RENDER = 1
    PARSE = 2
    CHECK = 3


class ContentTrial:
    """Withholds, offers and rejects contents according to the results of the cycles of one iteration."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._phase = _Phase.NONE
        """The phase that a configuration must pass for a conclusion."""
        self._withheld: dict[str, Content] = {}
        self._candidate: tuple[str, Content] | None = None
        """The withheld content that is offered again."""
        self._error: RejectedError | None = None
        self._problem = _UNKNOWN
        self._broken: Mapping[FragmentKey, Problem] = {}
        """Fragments that failed with the new contents and not before."""
        self._expected: frozenset[FragmentKey] = frozenset()
        """Fragments that fail with any contents."""
        self._failing: Mapping[FragmentKey, Problem] = {}
        """Fragments that failed in the newest render."""
        self._users: frozenset[str] | None = None
        """Namespaces of fragments that changed when the contents were withheld; None before that render."""
        self._spared: tuple[Content, frozenset[str]] | None = None
        """The content that was offered again although objects of some namespaces are rejected with it; these."""

    def failed(self, error: RejectedError) -> None:
        """Handle *error* of a cycle: on return, the configuration should be made again with other contents.

        Raises the original error if no content is at fault.
        """
        phase = _Phase[error.phase.upper()]
        offered = self._contents.pending()
        if error.contents is not None:
            if any(error.contents.get(key) is content for key, content in self._withheld.items()):
                # The configuration was made before the contents were withheld.
                return
            offered = {key: content for key, content in offered.items() if error.contents.get(key) is content}
        problem = error.problems[0] if error.problems else _UNKNOWN
        if self._candidate is not None and offered.get(self._candidate[0]) is self._candidate[1]:
            self._reject(self._candidate, problem)
            self._offer_next()
        elif offered:
            if self._phase is _Phase.NONE:
                self._error, self._problem = error, problem
            self._withhold(offered, phase)
        elif self._withheld and self._candidate is None and phase <= self._phase:
            first = self._error or error
            self._offer_all()
            raise first
        else:
            raise error

    def rendered(self, rendered: Rendered) -> bool:
        """Handle the failures in *rendered*; True: render again, with other contents."""
        failing = self._failing = {rejection.key: rejection.problem for rejection in rendered.rejections}
        blaming = {
            one.key: one.problem for one in rendered.rejections if not (_is_of_tenant(one) or self._is_spared(one))
        }
        broken = {key: problem for key, problem in blaming.items() if key not in self._expected}
        if self._phase is _Phase.NONE:
            offered = self._offered_in(rendered) if broken else {}
            if offered:
                self._broken = broken
                is_verdict = any(one.is_verdict and one.key in broken for one in rendered.rejections)
                self._withhold(offered, _Phase.CHECK if is_verdict else _Phase.RENDER)
                return True
            self._expected = frozenset(failing)
            return False
        users = frozenset(key.namespace for key in rendered.changed)
        if self._users is None:
            self._users = users
        if self._phase is not _Phase.RENDER:
            return self._judge_after_verdict(broken)
        if self._candidate is None:
            return self._judge_all(failing)
        if broken and self._is_used_without(broken, users):
            self._spare(self._candidate[1], broken)
            self._expected |= broken.keys()
            broken = {}
        return self._judge_one(broken)

    def _judge_after_verdict(self, broken: Mapping[FragmentKey, Problem]) -> bool:
        if self._candidate is None or self._error is not None or not broken or not self._broken:
            return False
        if any(key in broken for key in self._broken):
            return self._judge_one(broken)
        # Others than those that made the contents suspect: whether they fail without this one is not known yet.
        self._broken = broken
        self._withhold(dict([self._candidate]), self._phase)
        self._candidate = None
        return True

    def _judge_one(self, broken: Mapping[FragmentKey, Problem]) -> bool:
        if not broken:
            return self._succeed()
        assert self._candidate is not None
        self._reject(self._candidate, next(iter(broken.values())))
        self._offer_next()
        return True

    def _judge_all(self, failing: Mapping[FragmentKey, Problem]) -> bool:
        # A fragment that reaches a limit instead has not recovered.
        recovered = [key for key in self._broken if key not in failing]
        if self._error is None and not recovered:
            self._expected = frozenset({*self._broken, *failing})
            self._offer_all()
            return True
        users = self._users or frozenset()
        if self._phase is not _Phase.PARSE and len(self._withheld) == 1 and self._is_used_without(recovered, users):
            self._expected = frozenset(failing)
            (content,) = self._withheld.values()
            self._spare(content, recovered)
            self._offer_all()
            return True
        self._expected = frozenset(failing)
        if recovered and self._error is None:
            self._problem = self._broken[recovered[0]]
        return self._succeed()

    def _is_used_without(self, broken: Collection[FragmentKey], users: AbstractSet[str]) -> bool:
        """Whether the candidate, or the only withheld content, can be judged without the namespaces of *broken*.

        *users* are the namespaces of the fragments that changed with this content. Those of which no object fails are
        at least as many: a tenant may have several.
        """
        if self._error is not None or not broken or any(not key.namespace for key in broken):
            return False
        content = self._candidate[1] if self._candidate is not None else next(iter(self._withheld.values()))
        failing = self._spared_with(content).union(key.namespace for key in broken)
        return len(users - failing) >= len(failing)

    def _spare(self, content: Content, broken: Collection[FragmentKey]) -> None:
        self._spared = content, self._spared_with(content).union(key.namespace for key in broken)

    def _spared_with(self, content: Content) -> frozenset[str]:
        return self._spared[1] if self._spared is not None and self._spared[0] is content else frozenset()

    def _is_spared(self, rejection: Rejection) -> bool:
        """Whether *rejection* says nothing about the contents that are offered now."""
        if self._spared is None:
            return False
        spared, namespaces = self._spared
        is_pending = any(one is spared for one in self._contents.pending().values())
        return is_pending and rejection.key.namespace in namespaces

    def passed(self, phase: str, contents: Mapping[str, Content]) -> bool:
        """Record that a configuration with *contents* passed *phase*; True: make it again, with other contents."""
        if self._phase is not _Phase[phase.upper()]:
            return False
        if self._candidate is not None and contents.get(self._candidate[0]) is not self._candidate[1]:
            return False
        if any(contents.get(key) is content for key, content in self._withheld.items()):
            # The configuration was made before the contents were withheld.
            return False
        if self._broken and self._candidate is None and self._error is None:
            return self._judge_all(self._failing)
        return self._succeed()

    def _offered_in(self, rendered: Rendered) -> dict[str, Content]:
        pending = self._contents.pending()
        return {key: content for key, content in pending.items() if rendered.contents.get(key) is content}

    def _withhold(self, suspects: Mapping[str, Content], phase: _Phase) -> None:
        self._contents.withhold(suspects)
        self._withheld.update(suspects)
        self._phase = max(self._phase, phase)

    def _succeed(self) -> bool:
        if self._candidate is None and len(self._withheld) == 1:
            ((key, content),) = self._withheld.items()
            self._reject((key, content), self._problem)
            self._end()
            return False
        self._candidate = None
        return self._offer_next()

    def _offer_next(self) -> bool:
        """Offer the next withheld content again; False if there is none."""
        self._candidate = None
        if not self._withheld:
            self._end()
            return False
        key = next(iter(self._withheld))
        self._candidate = key, self._withheld.pop(key)
        self._contents.give_back(dict([self._candidate]))
        return True

    def _reject(self, content: tuple[str, Content], problem: Problem) -> None:
        self._contents.reject(*content, problem)

    def _offer_all(self) -> None:
        self._contents.give_back(self._withheld)
        self._end()

    def _end(self) -> None:
        self._phase = _Phase.NONE
        self._withheld = {}
        self._candidate = None
        self._error = None
        self._problem = _UNKNOWN
        self._broken = {}
        self._users = None


def _is_of_tenant(rejection: Rejection) -> bool:
    """Whether *rejection* is about what a tenant uses, and not about a content; others are the administrator's."""
    return rejection.is_limit and bool(rejection.key.namespace)
