"""Lexer for haproxy.cfg: quoting, escapes, comments and limits as HAProxy 2.8 and later read them.

The rules were verified with real binaries: a backslash is special only before
a blank, `#`, a quote, `\\`, `n`, `r`, `t` and `xHH` (and before `$` inside
weak quotes); `$` refers to the environment only inside weak quotes; a line
has at most 64 words, and a blank after the last word counts as one more; a
line cannot be continued. Environment variables are not expanded: a word that
refers to one is kept as written and marked.

Bytes that are not UTF-8 become surrogate escapes in strings.
"""

import re
from typing import Final, NamedTuple

from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Directive

MAX_WORDS: Final = 64
"""Maximum number of words on one line."""

EXCERPT_WIDTH: Final = 160

# Characters with which `str.split` would not give HAProxy's words: quotes, escapes, comments, and characters that are
# white space in Python but not in C.
_NEEDS_CARE: Final = re.compile(
    "[\"'\\\\#\r\0\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ud800-\udfff]"
)
# A line of words that are plain, or quoted as a whole with nothing to expand: almost all lines with such characters.
_SIMPLE_WORD: Final = "[^\\s\"'\\\\#\0\ud800-\udfff]+|'[^'\r\0\ud800-\udfff]*'|\"[^\"\\\\$\r\0\ud800-\udfff]*\""
_SIMPLE_WORDS: Final = re.compile(_SIMPLE_WORD)
_SIMPLE_LINE: Final = re.compile(f"[ \t]*(?:(?:{_SIMPLE_WORD})(?:[ \t]+|$))+")
_DASHED: Final = ("'-", '"-')
"""Beginnings of words that `Directive.dashed` lists; escapes are left to `split_line`."""
_UNWRITABLE: Final = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
_BLANK: Final = " \t\v\f"
_BLANKS: Final = re.compile("[ \t\v\f]+")
_PLAIN: Final = re.compile("[^ \t\v\f\r\"'\\\\#]+")
_PLAIN_IN_WEAK: Final = re.compile('[^"\\\\$\r]+')
_PLAIN_IN_STRONG: Final = re.compile("[^'\r]+")
_HEX: Final = re.compile("[0-9a-fA-F]{2}")
_VARIABLE: Final = re.compile(r"\$(?:[A-Za-z_.]\w*|\{[A-Za-z_.]\w*(?P<expand>\[\*\])?(?P<default>-[^}]*)?\})", re.ASCII)
_ESCAPES: Final = {" ": " ", "\\": "\\", "#": "#", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t"}


class Fault(NamedTuple):
    """A problem in one line, at a 0-based offset."""

    offset: int
    message: str
    hint: str


class Words(NamedTuple):
    """One line, split."""

    words: tuple[str, ...]
    offsets: tuple[int, ...]
    """0-based offset of each word in the line."""
    raw: tuple[int, ...]
    """Indices of words that refer to environment variables and are kept as written."""
    dashed: tuple[int, ...]
    """Indices of quoted or escaped words that begin with `-`."""
    faults: tuple[Fault, ...]


def lex_lines(text: str, *, source: str, first_line: int = 1) -> tuple[list[Directive], list[Problem]]:
    """Split *text* into directives, one for each line with words, and collect all problems.

    Lines are numbered from *first_line*. A line with problems becomes a
    directive of its readable words, so that later checks can continue.
    """
    directives: list[Directive] = []
    problems: list[Problem] = []
    needs_care, make, append = _NEEDS_CARE.search, Directive, directives.append
    for number, line in enumerate(text.split("\n"), first_line):
        if needs_care(line) is None:
            words = line.split()
            if len(words) < MAX_WORDS:
                if words:
                    append(make(tuple(words), number))
                continue
        elif line.lstrip(_BLANK).startswith("#") and "\0" not in line:
            continue
        elif _SIMPLE_LINE.fullmatch(line) is not None:
            found = _SIMPLE_WORDS.findall(line)
            if len(found) < MAX_WORDS and len(found[0].strip("\"'")) > 0:
                words = [word[1:-1] if word[0] in "\"'" else word for word in found]
                dashed = [index for index, word in enumerate(found) if word.startswith(_DASHED)]
                append(make(tuple(words), number, (), tuple(dashed)))
                continue
        split = split_line(line)
        problems += [problem_at(line, number, fault, source=source) for fault in split.faults]
        # HAProxy ignores a line whose first word is empty.
        if split.words and split.words[0]:
            append(make(split.words, number, split.raw, split.dashed))
    return directives, problems


def problem_at(line: str, number: int, fault: Fault, *, source: str) -> Problem:
    """Return *fault* of *line* as a problem with position and excerpt."""
    start = max(0, fault.offset - EXCERPT_WIDTH // 2)
    return Problem(
        message=fault.message,
        source=source,
        line=number,
        column=fault.offset + 1,
        hint=fault.hint,
        excerpt=line[start : start + EXCERPT_WIDTH].rstrip("\r"),
    )


def split_line(line: str) -> Words:
    """Split one line, without its line feed, into words; never raises."""
    return _LineReader(line).read()


class _LineReader:
    """Reads one line that is not plain; lives for one call."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0
        self.words: list[str] = []
        self.offsets: list[int] = []
        self.raw: list[int] = []
        self.dashed: list[int] = []
        self.faults: list[Fault] = []
        self.pieces: list[str] = []
        self.start = -1
        self.refers = False

    def read(self) -> Words:
        line = self.line
        for match in _UNWRITABLE.finditer(line):
            what = "NUL character" if match[0] == "\0" else "character that UTF-8 cannot express"
            self._fault(match.start(), what, "remove it")
        self._skip(_BLANKS)
        trailing = False
        while self.at < len(line):
            char = line[self.at]
            if char in _BLANK:
                self._end_word()
                self._skip(_BLANKS)
                trailing = True
                continue
            if char in "#\r":
                break
            trailing = False
            self._read_piece(char)
        self._end_word()
        self._check_return()
        if len(self.words) + trailing > MAX_WORDS:
            self._check_count()
        return Words(tuple(self.words), tuple(self.offsets), tuple(self.raw), tuple(self.dashed), tuple(self.faults))

    def _read_piece(self, char: str) -> None:
        if self.start < 0:
            self.start = self.at
        if char == "'":
            self._read_strong()
        elif char == '"':
            self._read_weak()
        elif char == "\\":
            self._read_escape(weak=False)
        else:
            self._take(_PLAIN)

    def _read_strong(self) -> None:
        opened, self.at = self.at, self.at + 1
        self._take(_PLAIN_IN_STRONG)
        self._close("'", opened)

    def _read_weak(self) -> None:
        opened, self.at = self.at, self.at + 1
        while self.at < len(self.line) and self.line[self.at] not in '"\r':
            char = self.line[self.at]
            if char == "\\":
                self._read_escape(weak=True)
            elif char == "$":
                self._read_variable()
            else:
                self._take(_PLAIN_IN_WEAK)
        self._close('"', opened)

    def _close(self, quote: str, opened: int) -> None:
        if self.line.startswith(quote, self.at):
            self.at += 1
            return
        self._fault(
            opened, f"unmatched quote {quote}", f"close it on the same line, or write \\{quote} for the character"
        )

    def _read_escape(self, *, weak: bool) -> None:
        char = self.line[self.at + 1 : self.at + 2]
        if char == "x":
            self._read_hex()
        elif char in _ESCAPES:
            self.pieces.append(_ESCAPES[char])
            self.at += 2
        elif char == "$" and weak:
            self.pieces.append("$")
            self.at += 2
        else:
            # Any other backslash is literal, at the end of the line as well.
            self.pieces.append("\\")
            self.at += 1

    def _read_hex(self) -> None:
        digits = _HEX.match(self.line, self.at + 2)
        if digits is None:
            self._fault(self.at, r"\x needs two hexadecimal digits", r"write \\x for a literal backslash and x")
            self.at += 2
            return
        code = int(digits[0], 16)
        if code == 0:
            self._fault(self.at, r"\x00 ends the word for HAProxy", "remove it")
        # A byte above 127 is part of a character or invalid: a word is decoded at its end.
        self.pieces.append(chr(code) if code < 0x80 else chr(0xDC00 + code))
        self.at += 4

    def _read_variable(self) -> None:
        self.refers = True
        match = _VARIABLE.match(self.line, self.at)
        if match is not None:
            self.pieces.append(match[0])
            self.at = match.end()
            return
        hint = r"write \$ for a literal dollar sign inside weak quotes, or use strong quotes"
        self._fault(self.at, "not a reference to an environment variable", hint)
        self.pieces.append("$")
        self.at += 1

    def _take(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.line, self.at)
        if match is not None:
            self.pieces.append(match[0])
            self.at = match.end()

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.line, self.at)
        if match is not None:
            self.at = match.end()

    def _end_word(self) -> None:
        if self.start < 0:
            return
        if self.refers:
            self.raw.append(len(self.words))
            word = self.line[self.start : self.at]
        else:
            word = _decode_bytes("".join(self.pieces))
            if word.startswith("-") and self.line[self.start] != "-":
                self.dashed.append(len(self.words))
        self.words.append(word)
        self.offsets.append(self.start)
        self.pieces, self.start, self.refers = [], -1, False

    def _check_return(self) -> None:
        # HAProxy silently ignores the text after a carriage return, which is never intended.
        if self.line.startswith("\r", self.at) and self.line[self.at :].strip(_BLANK + "\r"):
            hint = "HAProxy ignores the rest of the line; end lines with a line feed"
            self._fault(self.at, "carriage return inside the line", hint)

    def _check_count(self) -> None:
        message = f"more than {MAX_WORDS} words"
        if len(self.words) == MAX_WORDS:
            self._fault(len(self.line), message, "HAProxy counts the blank at the end as one more word: remove it")
        else:
            self._fault(self.offsets[MAX_WORDS], message, "quote words that belong together, or split the line")

    def _fault(self, offset: int, message: str, hint: str) -> None:
        self.faults.append(Fault(offset, message, hint))


def _decode_bytes(word: str) -> str:
    if word.isascii():
        return word
    return word.encode(errors="replace" if _UNWRITABLE.search(word) else "surrogateescape").decode(
        errors="surrogateescape"
    )
