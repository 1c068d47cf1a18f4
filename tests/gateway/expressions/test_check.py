"""Regular expressions: which are accepted, what the normalised form matches, and the bound of their cost."""

import re
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haptic_trio.gateway.expressions.check import SHORTEST_LIMIT, Expression, expression
from haptic_trio.gateway.expressions.cost import Automaton, bound_of, value_of
from haptic_trio.gateway.expressions.nodes import END, Alternatives, Assertion, ByteSet, Node, Repeat, Sequence
from haptic_trio.gateway.expressions.syntax import ExpressionError, parse
from tests.gateway.expressions.expression_table import ACCEPTED, REJECTED


def matches(found: Expression, text: str) -> bool:
    """Whether HAProxy would match *text*; Python has another name for the end."""
    pattern = rf"(?s:{found.pattern})".replace(r"\z", r"\Z").encode("latin-1")
    return re.fullmatch(pattern, text.encode(), re.ASCII) is not None


@pytest.mark.parametrize(("text", "match", "other"), ACCEPTED, ids=lambda value: repr(value)[:60])
def test_an_expression_in_common_use_is_accepted_and_matches_whole_texts(text: str, match: str, other: str) -> None:
    found = expression(text)

    assert found.longest >= SHORTEST_LIMIT
    assert matches(found, match)
    assert not matches(found, other)


@pytest.mark.parametrize(("text", "problem"), REJECTED, ids=lambda value: repr(value)[:60])
def test_a_rejected_expression_is_reported_with_problem_and_fix(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        expression(text)

    message = str(caught.value)
    assert problem in message
    assert "; use " in message
    assert text[:40] in message


def test_an_expression_that_may_backtrack_is_limited_to_shorter_texts() -> None:
    lengths = [expression(text).longest for text in ("/[a-z]+", "[a-z]*[a-y]*x", "(?:ab|c)*")]

    assert lengths[0] == 8_192
    assert 256 <= lengths[1] < 2_000
    # More rounds than PCRE's stack has room for would end as a text that does not match.
    assert 256 <= lengths[2] < 1_365


def test_versions_of_a_long_expression_do_not_stay_in_memory() -> None:
    size, number = 200_000, 20
    tracemalloc.start()
    try:
        for version in range(number):
            with pytest.raises(ExpressionError):
                expression(f"{version}" + "a" * size)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < size * number / 4


def test_no_expression_takes_long_to_analyse() -> None:
    texts = [
        "(" * 30 + "a" + "){9}" * 30,
        "a?" * 500,
        "(?:[a-z]|" * 29 + "1" + ")" * 29,
        "|".join(chr(65 + number % 26) + str(number) for number in range(250)),
        "(?:a|b?)" * 100,
        "[a-z]{0,64}" * 7,
        "(?:" + "|".join(f"[a-z]{{{number}}}" for number in range(1, 25)) + ")*",
        ".*" * 500,
        "(?:a" * 29 + "){0,2}" * 29,
    ]
    for text in texts:
        began = time.process_time()
        with suppress(ExpressionError):
            expression(text[:1_024])
        # A few milliseconds where nothing else runs.
        assert time.process_time() - began < 1, text


LITERALS = st.sampled_from(["a", "b", "c", "ab", "[ab]", "[^a]", ".", r"\w", r"\.", "x"])


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?", "??"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: f"({'|'.join(options)})"),
        st.tuples(LITERALS, counts).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(inner, counts).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


EXPRESSIONS = st.recursive(LITERALS, _nested, max_leaves=8)
TEXTS = st.text(alphabet="abcx.", max_size=12)


@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much], deadline=None)
@given(EXPRESSIONS, st.lists(TEXTS, min_size=1, max_size=8))
def test_a_normalised_expression_matches_the_same_texts(text: str, subjects: list[str]) -> None:
    try:
        found = expression(text)
    except ExpressionError:
        return
    for subject in subjects:
        assert matches(found, subject) == (re.fullmatch(text, subject, re.DOTALL | re.ASCII) is not None)


class Backtracking:
    """A matcher that goes back as PCRE does, and counts how often it tries something."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self.steps = 0

    def run(self, node: Node) -> bool:
        """Whether the whole text matches."""
        return self._match(node, 0, lambda at: at == len(self._text))

    def _match(self, node: Node, at: int, then: Callable[[int], bool]) -> bool:
        match node:
            case ByteSet(mask):
                self.steps += 1
                return at < len(self._text) and bool(mask >> self._text[at] & 1) and then(at + 1)
            case Assertion(kind):
                return (at == len(self._text) if kind == END else at == 0) and then(at)
            case Sequence(items):
                return self._sequence(items, at, then)
            case Alternatives(options):
                return any(self._match(option, at, then) for option in options)
            case Repeat():
                return self._repeat(node, 0, at, then)

    def _sequence(self, items: tuple[Node, ...], at: int, then: Callable[[int], bool]) -> bool:
        if not items:
            return then(at)
        return self._match(items[0], at, lambda after: self._sequence(items[1:], after, then))

    def _repeat(self, node: Repeat, count: int, at: int, then: Callable[[int], bool]) -> bool:
        def again() -> bool:
            may_repeat = node.high is None or count < node.high
            return may_repeat and self._match(node.body, at, lambda after: self._repeat(node, count + 1, after, then))

        if count < node.low:
            return again()
        return then(at) or again() if node.is_lazy else again() or then(at)


@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much], deadline=None)
@given(EXPRESSIONS, st.lists(TEXTS, min_size=1, max_size=8), st.integers(1, 4))
def test_no_text_takes_more_steps_than_the_bound_says(text: str, subjects: list[str], times: int) -> None:
    try:
        node = parse(text)
        bound = bound_of(Automaton([node]))
    except ExpressionError:
        return
    for subject in subjects:
        matcher = Backtracking((subject * times).encode())
        matcher.run(node)
        assert matcher.steps <= value_of(bound, len(subject) * times), subject * times
