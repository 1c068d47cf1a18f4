"""Reads regular expressions: the syntax that RE2 and PCRE have in common. Everything else is rejected by name.

The text is read as the bytes of its UTF-8 form, as HAProxy matches bytes.
`.` stands for every byte.
"""

import re
import string
from typing import Final

from haptic_trio.gateway.expressions.nodes import (
    ALL_BYTES,
    BEGIN,
    END,
    NOT_WORD,
    WORD,
    Assertion,
    ByteSet,
    Node,
    Repeat,
    alternatives,
    mask_of,
    sequence,
    shortest,
)
from haptic_trio.gateway.objects import GatewayObjectError

MOST_CHARACTERS: Final = 1_024
"""Maximum number of characters in an expression."""
MOST_REPETITIONS: Final = 1_000
"""Maximum count of a repetition, as in RE2."""
MOST_NESTED: Final = 30
"""Maximum depth of nested groups."""

_COUNT: Final = re.compile(r"\{([0-9]{1,5})(,([0-9]{0,5}))?\}", re.ASCII)
_OPEN_COUNT: Final = re.compile(r"\{ *,? *[0-9]+[0-9, ]*\}", re.ASCII)
_HEX: Final = re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,2})\}")
_GROUP: Final = re.compile(r"\?(?:P?<[A-Za-z_][A-Za-z0-9_]{0,31}>|:)")
_FLAGS: Final = re.compile(r"\?([is]*)(-i)?([:)])")
_POSIX: Final = re.compile(r"\[:(\^?)([a-z]{1,10}):\]")


def _mask(characters: str) -> int:
    return mask_of(characters.encode("latin-1"))


_WORDS: Final = _mask(string.ascii_letters + string.digits + "_")
_CLASSES: Final = {"d": _mask(string.digits), "w": _WORDS, "s": _mask(" \t\n\v\f\r")}
_NAMED: Final = {
    "alnum": _mask(string.ascii_letters + string.digits),
    "alpha": _mask(string.ascii_letters),
    "ascii": mask_of(range(128)),
    "blank": _mask(" \t"),
    "cntrl": mask_of([*range(32), 127]),
    "digit": _mask(string.digits),
    "graph": mask_of(range(33, 127)),
    "lower": _mask(string.ascii_lowercase),
    "print": mask_of(range(32, 127)),
    "punct": _mask(string.punctuation),
    "space": _mask(" \t\n\v\f\r"),
    "upper": _mask(string.ascii_uppercase),
    "word": _WORDS,
    "xdigit": _mask(string.hexdigits),
}
_LETTERS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
_ASSERTIONS: Final = {"A": BEGIN, "z": END, "Z": END, "b": WORD, "B": NOT_WORD}
_LOWER: Final = mask_of(range(ord("a"), ord("z") + 1))
_UPPER: Final = mask_of(range(ord("A"), ord("Z") + 1))
_UNSUPPORTED_GROUPS: Final = (
    ("?=", "a lookahead", "a match of its own for the exception"),
    ("?!", "a lookahead", "a match of its own for the exception"),
    ("?<=", "a lookbehind", "a match of its own for the exception"),
    ("?<!", "a lookbehind", "a match of its own for the exception"),
    ("?>", "an atomic group", "(?:…)"),
    ("?#", "a comment", "an annotation of the route"),
    ("?C", "a callout", "nothing instead"),
    ("?R", "a recursion", "the expression itself"),
    ("?&", "a recursion", "the expression itself"),
    ("?P>", "a recursion", "the expression itself"),
    ("?P=", "a backreference", "the expression itself"),
    ("?(", "a condition", "alternatives"),
    ("?|", "a branch reset", "(?:…)"),
    ("*", "a verb such as (*LIMIT_MATCH=…)", r"\( for a parenthesis"),
)


class ExpressionError(GatewayObjectError):
    """A regular expression is rejected; permanent until it changes."""


def parse(text: str) -> Node:
    """Return the tree of the expression *text*, or raise `ExpressionError`."""
    if len(text) > MOST_CHARACTERS:
        raise ExpressionError(f"has {len(text):,} characters; use at most {MOST_CHARACTERS:,}")
    reader = _Reader(text)
    found = reader.alternatives(ignores_case=False)
    if reader.has_more():
        raise reader.error("a ) without its (", r"\) for the character itself")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def has_more(self) -> bool:
        """Whether there is more to read."""
        return self._at < len(self._text)

    def error(self, problem: str, fix: str) -> ExpressionError:
        return ExpressionError(f"has {problem} at character {self._at + 1}; use {fix}")

    def alternatives(self, *, ignores_case: bool) -> Node:
        """Read up to the `)` of a group, or the end."""
        outer, self._ignores_case = self._ignores_case, ignores_case
        options: list[Node] = []
        items: list[Node] = []
        while self.has_more() and not self._sees(")"):
            if self._takes("|"):
                options.append(sequence(items))
                items = []
            else:
                items += self._items()
        options.append(sequence(items))
        self._ignores_case = outer
        return alternatives(options)

    def _sees(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _takes(self, text: str) -> bool:
        found = self._sees(text)
        self._at += len(text) if found else 0
        return found

    def _takes_match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found

    def _next(self) -> str:
        char = self._text[self._at]
        self._at += 1
        return char

    def _items(self) -> list[Node]:
        """Read one item with its repetition, or several literal ones."""
        if self._takes(r"\Q"):
            literal, _, rest = self._text[self._at :].partition(r"\E")
            self._at = len(self._text) - len(rest)
            return [self._repeated(node) if last else node for node, last in self._literals(literal)]
        if self._takes(r"\E"):
            return []
        if self._sees("("):
            group = self._group()
            return [] if group is None else [self._repeated(group)]
        return [self._item()]

    def _item(self) -> Node:
        if self._text[self._at] in "*+?":
            raise self.error("a repetition of nothing", "a backslash for the character itself")
        if _COUNT.match(self._text, self._at) or _OPEN_COUNT.match(self._text, self._at):
            raise self.error("a count that repeats nothing or lacks its minimum", r"{0,n}, or \{ for a brace")
        match self._next():
            case "[":
                return self._repeated(self._set())
            case ".":
                return self._repeated(ByteSet(ALL_BYTES))
            case "^" | "$" as char:
                return self._assertion(BEGIN if char == "^" else END)
            case "\\":
                return self._escaped()
            case char:
                return self._repeated(self._literal(char))

    def _literals(self, text: str) -> list[tuple[Node, bool]]:
        return [(self._literal(char), position == len(text) - 1) for position, char in enumerate(text)]

    def _literal(self, char: str) -> Node:
        try:
            return sequence(ByteSet(self._folded(1 << byte)) for byte in char.encode())
        except UnicodeEncodeError:
            raise self.error("a character that is half of a pair", "whole characters") from None

    def _folded(self, mask: int) -> int:
        if self._ignores_case:
            mask |= (mask & _LOWER) >> 32 | (mask & _UPPER) << 32
        return mask

    def _assertion(self, kind: str) -> Node:
        if self.has_more() and (self._text[self._at] in "*+?" or _COUNT.match(self._text, self._at)):
            raise self.error("a repetition of an assertion", "the assertion alone")
        return Assertion(kind)

    def _escaped(self) -> Node:
        if not self.has_more():
            raise self.error("a backslash at its end", r"\\ for the character itself")
        char = self._text[self._at]
        if char in _ASSERTIONS:
            self._at += 1
            return self._assertion(_ASSERTIONS[char])
        mask = self._escaped_mask()
        return self._repeated(self._literal(char) if mask is None else ByteSet(self._folded(mask)))

    def _escaped_mask(self) -> int | None:
        """Read what follows a backslash; returns None for a character beyond ASCII, which stands for itself."""
        char = self._next()
        if char.lower() in _CLASSES:
            mask = _CLASSES[char.lower()]
            return mask if char.islower() else ALL_BYTES & ~mask
        if char in _LETTERS:
            return 1 << _LETTERS[char]
        if char == "x" and (found := self._takes_match(_HEX)):
            return 1 << int(found[1] or found[2], 16)
        if not char.isascii():
            return None
        if char.isalnum():
            self._at -= 1
            if char in "123456789gk":
                raise self.error("a backreference", "the expression itself")
            raise self.error(f"\\{char}, which is not supported", "a set of characters, or \\x and two digits")
        return 1 << ord(char)

    def _group(self) -> Node | None:
        """Read a group; returns None for one that only sets flags."""
        self._at += 1
        ignores_case = self._ignores_case
        if not self._takes_match(_GROUP):
            flags = self._takes_match(_FLAGS)
            if flags:
                ignores_case = not flags[2] and (ignores_case or "i" in flags[1])
                if flags[3] == ")":
                    self._ignores_case = ignores_case
                    return None
            elif self._sees("?") or self._sees("*"):
                raise self._unsupported_group()
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise self.error("groups too deep within each other", f"at most {MOST_NESTED}")
        found = self.alternatives(ignores_case=ignores_case)
        self._depth -= 1
        if not self._takes(")"):
            raise self.error("a ( without its )", r"\( for the character itself")
        return found

    def _unsupported_group(self) -> ExpressionError:
        self._at -= 1
        for begin, problem, fix in _UNSUPPORTED_GROUPS:
            if self._sees("(" + begin):
                return self.error(f"{problem}, which is not supported", fix)
        if re.compile(r"\(\?[+-]?[0-9]").match(self._text, self._at):
            return self.error("a recursion, which is not supported", "the expression itself")
        return self.error("flags or a group that are not supported", "the flags i and s, (?:…) or (…)")

    def _repeated(self, node: Node) -> Node:
        low, high = 1, 1
        start = self._at
        if self._takes("*"):
            low, high = 0, -1
        elif self._takes("+"):
            high = -1
        elif self._takes("?"):
            low = 0
        elif count := self._takes_match(_COUNT):
            low = int(count[1])
            high = low if count[2] is None else int(count[3]) if count[3] else -1
        elif _OPEN_COUNT.match(self._text, start):
            raise self.error("a count without its minimum", r"{0,n}, or \{ for a brace")
        if start == self._at:
            return node
        if max(low, high) > MOST_REPETITIONS or -1 < high < low:
            self._at = start
            raise self.error("a count that is too large or below its minimum", f"counts up to {MOST_REPETITIONS:,}")
        if self._sees("+"):
            raise self.error("a possessive repetition, which is not supported", "the repetition without its last +")
        is_lazy = self._takes("?")
        if self._sees("*") or self._sees("+") or self._sees("?") or _COUNT.match(self._text, self._at):
            raise self.error("a repetition of a repetition", "one of them")
        if high == 0:
            return sequence(())
        if high != 1 and not shortest(node):
            self._at = start
            raise self.error(
                "a repetition of something that can match the empty text (exponential time)",
                "a group that matches at least one character",
            )
        return Repeat(node, low, None if high < 0 else high, is_lazy) if (low, high) != (1, 1) else node

    def _set(self) -> Node:
        start = self._at - 1
        is_negated = self._takes("^")
        mask = 0
        is_first = True
        while is_first or not self._sees("]"):
            is_first = False
            if not self.has_more():
                self._at = start
                raise self.error("a [ without its ]", r"\[ for the character itself")
            low = self._member()
            if low.bit_count() == 1 and self._sees("-") and not self._sees("-]"):
                self._at += 1
                if not self.has_more():
                    continue
                high = self._member()
                if high.bit_count() == 1:
                    if high < low:
                        raise self.error("a range with its end before its start", "the smaller character first")
                    low = (high << 1) - low
                else:
                    low |= high | 1 << ord("-")
            mask |= low
        self._at += 1
        mask = self._folded(mask)
        mask = ALL_BYTES & ~mask if is_negated else mask
        if not mask:
            raise self.error("a set without characters", "a set that matches something")
        return ByteSet(mask)

    def _member(self) -> int:
        """Read one member of a set."""
        if named := self._takes_match(_POSIX):
            if named[2] not in _NAMED:
                raise self.error("a class of characters that is unknown", ", ".join(sorted(_NAMED)))
            return ALL_BYTES & ~_NAMED[named[2]] if named[1] else _NAMED[named[2]]
        if self._sees("[:") or self._sees("[.") or self._sees("[="):
            raise self.error("an unknown class in a set", r"\[ for the character itself")
        char = self._next()
        if char == "\\":
            if not self.has_more():
                return 1
            mask = self._escaped_mask() if self._text[self._at] != "b" else None
            if mask is not None:
                return mask
        elif char.isascii():
            return 1 << ord(char)
        raise self.error("a character beyond ASCII, or \\b, in a set", "alternatives, such as (é|è)")
