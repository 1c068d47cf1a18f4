"""PromQL as far as the chart uses it: whether an expression is well formed, and what it asks for.

The grammar is that of Prometheus' documentation, without subqueries and the
`@` modifier. Kinds are checked: `rate` takes a range, and nothing else does.
"""

import re
from typing import Final

import msgspec

_TOKEN: Final = re.compile(
    r"\s*(?:"
    r"(?P<duration>(?:\d+(?:ms|[smhdwy]))+)(?![\w.])"
    r"|(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_:][\w:]*)"
    r'|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<sign>=~|!~|==|!=|<=|>=|[-+*/%^=<>(){}\[\],])"
    r")"
)
_AGGREGATES: Final = {"sum", "min", "max", "avg", "count", "group", "stddev", "stdvar"}
_AGGREGATES_WITH_VALUE: Final = {"topk", "bottomk", "quantile", "count_values"}
_FUNCTIONS: Final = {
    "rate": ("range",),
    "irate": ("range",),
    "increase": ("range",),
    "changes": ("range",),
    "delta": ("range",),
    "max_over_time": ("range",),
    "min_over_time": ("range",),
    "avg_over_time": ("range",),
    "histogram_quantile": ("scalar", "vector"),
    "absent": ("vector",),
    "clamp_min": ("vector", "scalar"),
    "time": (),
    "vector": ("scalar",),
}
_BINARY: Final = (("or",), ("and", "unless"), ("==", "!=", "<=", "<", ">=", ">"), ("+", "-"), ("*", "/", "%"), ("^",))
_COMPARISONS: Final = set(_BINARY[2])
_MATCHERS: Final = {"=", "!=", "=~", "!~"}


class PromqlError(Exception):
    """The expression is not well formed."""


class Selector(msgspec.Struct, frozen=True):
    """What is asked for."""

    metric: str
    matchers: tuple[tuple[str, str], ...]
    """Names of labels, each with the value or the pattern that it is compared with."""

    @property
    def labels(self) -> frozenset[str]:
        """The names alone."""
        return frozenset(name for name, _ in self.matchers)


class Query(msgspec.Struct, frozen=True):
    """An expression that is well formed."""

    kind: str
    """`scalar`, `vector` or `range`."""
    selectors: tuple[Selector, ...]
    grouped: frozenset[str]
    """Labels that something is grouped by."""


def parse(text: str) -> Query:
    """Return what *text* asks for; raises PromqlError."""
    parser = _Parser(_tokens(text))
    kind = parser.expression()
    parser.expect_end()
    return Query(kind, tuple(parser.selectors), frozenset(parser.grouped))


def _tokens(text: str) -> list[tuple[str, str]]:
    found, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise PromqlError(f"cannot be read: {text[position:]!r}")
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self.selectors: list[Selector] = []
        self.grouped: set[str] = set()

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise PromqlError(f"does not end at {self._peek()!r}")

    def expression(self, level: int = 0) -> str:
        if level == len(_BINARY):
            return self._unary()
        left = self.expression(level + 1)
        while self._peek() in _BINARY[level]:
            operator = self._take()
            if operator in _COMPARISONS and self._peek() == "bool":
                self._take()
            self._matching()
            right = self.expression(level + 1)
            if "range" in {left, right}:
                raise PromqlError(f"a range cannot be an operand of {operator}")
            if operator in {"or", "and", "unless"} and {left, right} != {"vector"}:
                raise PromqlError(f"{operator} needs vectors")
            left = "vector" if "vector" in {left, right} else "scalar"
        return left

    def _matching(self) -> None:
        if self._peek() in {"on", "ignoring"}:
            self._take()
            self._names()
            if self._peek() in {"group_left", "group_right"}:
                self._take()
                if self._peek() == "(":
                    self._names()

    def _unary(self) -> str:
        if self._peek() in {"+", "-"}:
            self._take()
        kind = self._primary()
        if self._peek() == "[":
            if kind != "vector":
                raise PromqlError("only a selector has a range")
            self._take("[")
            self._take_kind("duration")
            self._take("]")
            kind = "range"
        if self._peek() == "offset":
            self._take()
            self._take_kind("duration")
        return kind

    def _primary(self) -> str:
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        if kind in {"number", "text"}:
            self._take()
            return "scalar"
        if text == "(":
            self._take("(")
            inner = self.expression()
            self._take(")")
            return inner
        if text == "{":
            raise PromqlError("a selector without a metric")
        if kind != "name":
            raise PromqlError(f"something is missing before {text!r}")
        self._take()
        if text in _AGGREGATES | _AGGREGATES_WITH_VALUE:
            return self._aggregate(text)
        if self._peek() == "(":
            return self._function(text)
        self._selector(text)
        return "vector"

    def _aggregate(self, name: str) -> str:
        grouped = self._grouping()
        expected = ("scalar", "vector") if name in _AGGREGATES_WITH_VALUE else ("vector",)
        self._arguments(name, expected)
        if not grouped:
            self._grouping()
        return "vector"

    def _grouping(self) -> bool:
        if self._peek() not in {"by", "without"}:
            return False
        is_by = self._take() == "by"
        names = self._names()
        if is_by:
            self.grouped |= names
        return True

    def _function(self, name: str) -> str:
        if name not in _FUNCTIONS:
            raise PromqlError(f"there is no function {name}")
        self._arguments(name, _FUNCTIONS[name])
        return "scalar" if name == "time" else "vector"

    def _arguments(self, name: str, expected: tuple[str, ...]) -> None:
        self._take("(")
        kinds = []
        while self._peek() != ")":
            kinds.append(self.expression())
            if self._peek() == ",":
                self._take()
        self._take(")")
        if tuple(kinds) != expected:
            raise PromqlError(f"{name} takes {expected}, not {tuple(kinds)}")

    def _selector(self, metric: str) -> None:
        matchers = []
        if self._peek() == "{":
            self._take("{")
            while self._peek() != "}":
                name = self._take_kind("name")
                if self._take() not in _MATCHERS:
                    raise PromqlError(f"a matcher of {metric} has no operator")
                matchers.append((name, self._take_kind("text").strip('"')))
                if self._peek() == ",":
                    self._take()
            self._take("}")
        self.selectors.append(Selector(metric, tuple(matchers)))

    def _names(self) -> set[str]:
        self._take("(")
        names = set()
        while self._peek() != ")":
            names.add(self._take_kind("name"))
            if self._peek() == ",":
                self._take()
        self._take(")")
        return names

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        text = self._peek()
        if not text or (expected and text != expected):
            raise PromqlError(f"{text!r} where {expected or 'something else'} should be")
        self._at += 1
        return text

    def _take_kind(self, kind: str) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at][0] != kind:
            raise PromqlError(f"{self._peek()!r} where a {kind} should be")
        return self._take()
