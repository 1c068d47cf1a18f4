"""Trial of fetched contents: finds the content that makes a configuration invalid by leaving contents out.

A content that has just come is offered to the templates like any other. When
the configuration is refused then, or fragments fail that did not before, all
such contents are left out, and it is made again. If that helps nothing, they
are not to blame, and come back. If it does, the only one is to blame; of
several, one after another comes back, and is to blame if that breaks it
again. So it needs no trace of what a content went into, and whatever can
refuse a configuration can refuse a content.
"""

from collections.abc import Mapping
from enum import IntEnum

from haptic_trio.errors import Problem
from haptic_trio.httpstore.content import Content
from haptic_trio.httpstore.contents import Contents
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.values.subjects import FragmentKey

_UNKNOWN = Problem(message="the configuration was refused")


class _Phase(IntEnum):
    NONE = 0
    RENDER = 1
    PARSE = 2
    CHECK = 3


class ContentTrial:
    """The decision, one for all cycles of an iteration; what it decides is done with the contents at once."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._phase = _Phase.NONE
        """What a configuration must pass before anything can be said."""
        self._left_out: dict[str, Content] = {}
        self._candidate: tuple[str, Content] | None = None
        """What has come back, of all that were left out."""
        self._error: RejectedError | None = None
        self._problem = _UNKNOWN
        self._broken: Mapping[FragmentKey, Problem] = {}
        """The fragments that failed all of a sudden."""
        self._expected: frozenset[FragmentKey] = frozenset()
        """Those that fail whatever the contents are."""

    def failed(self, error: RejectedError) -> None:
        """Take note that there is no configuration for *error*: it should be made again, with other contents.

        Raises the error that it is if no content is to blame.
        """
        phase = _Phase[error.phase.upper()]
        offered = self._contents.pending()
        if error.contents is not None:
            if any(error.contents.get(key) is content for key, content in self._left_out.items()):
                # It was made before they were left out.
                return
            offered = {key: content for key, content in offered.items() if error.contents.get(key) is content}
        problem = error.problems[0] if error.problems else _UNKNOWN
        if self._candidate is not None and offered.get(self._candidate[0]) is self._candidate[1]:
            self._convict(self._candidate, problem)
            self._come_back()
        elif offered:
            if self._phase is _Phase.NONE:
                self._error, self._problem = error, problem
            self._leave_out(offered, phase)
        elif self._left_out and self._candidate is None and phase <= self._phase:
            first = self._error or error
            self._acquit()
            raise first
        else:
            raise error

    def rendered(self, rendered: Rendered) -> bool:
        """Take note of what fails in *rendered*; True: render again, with other contents."""
        failing = {refusal.key: refusal.problem for refusal in rendered.refusals}
        if self._phase is _Phase.NONE:
            broken = {key: problem for key, problem in failing.items() if key not in self._expected}
            offered = self._offered_in(rendered) if broken else {}
            if offered:
                self._broken = broken
                self._leave_out(offered, _Phase.RENDER)
                return True
            self._expected = frozenset(failing)
            return False
        if self._phase is not _Phase.RENDER:
            return False
        return self._judge_one(failing) if self._candidate is not None else self._judge_all(failing)

    def _judge_one(self, failing: Mapping[FragmentKey, Problem]) -> bool:
        broken = [problem for key, problem in failing.items() if key not in self._expected]
        if not broken:
            return self._succeed()
        assert self._candidate is not None
        self._convict(self._candidate, broken[0])
        self._come_back()
        return True

    def _judge_all(self, failing: Mapping[FragmentKey, Problem]) -> bool:
        mended = [key for key in self._broken if key not in failing]
        if self._error is None and not mended:
            self._expected = frozenset({*self._broken, *failing})
            self._acquit()
            return True
        self._expected = frozenset(failing)
        if mended:
            self._problem = self._broken[mended[0]]
        return self._succeed()

    def passed(self, phase: str, contents: Mapping[str, Content]) -> bool:
        """Take note that what was made of *contents* has passed *phase*; True: make it again, with other contents."""
        if self._phase is not _Phase[phase.upper()]:
            return False
        if self._candidate is not None and contents.get(self._candidate[0]) is not self._candidate[1]:
            return False
        if any(contents.get(key) is content for key, content in self._left_out.items()):
            # It was made before they were left out.
            return False
        return self._succeed()

    def _offered_in(self, rendered: Rendered) -> dict[str, Content]:
        pending = self._contents.pending()
        return {key: content for key, content in pending.items() if rendered.contents.get(key) is content}

    def _leave_out(self, suspects: Mapping[str, Content], phase: _Phase) -> None:
        self._contents.withhold(suspects)
        self._left_out.update(suspects)
        self._phase = max(self._phase, phase)

    def _succeed(self) -> bool:
        if self._candidate is None and len(self._left_out) == 1:
            ((key, content),) = self._left_out.items()
            self._convict((key, content), self._problem)
            self._end()
            return False
        self._candidate = None
        return self._come_back()

    def _come_back(self) -> bool:
        """Have the next one back; False if there is none."""
        self._candidate = None
        if not self._left_out:
            self._end()
            return False
        key = next(iter(self._left_out))
        self._candidate = key, self._left_out.pop(key)
        self._contents.give_back(dict([self._candidate]))
        return True

    def _convict(self, guilty: tuple[str, Content], problem: Problem) -> None:
        self._contents.refuse(*guilty, problem)

    def _acquit(self) -> None:
        self._contents.give_back(self._left_out)
        self._end()

    def _end(self) -> None:
        self._phase = _Phase.NONE
        self._left_out = {}
        self._candidate = None
        self._error = None
        self._problem = _UNKNOWN
        self._broken = {}
