"""Messages of `haproxy -c`: bounded, and parsed to problems with source and line."""

import re
from typing import Final

import msgspec

from haptic_trio.errors import Problem

_MESSAGE: Final = re.compile(
    r"\[(?P<level>ALERT|WARNING|NOTICE|DIAG/[A-Z]+|INFO)\]\s*\(\d+\)\s*:\s*(?P<text>.*)", re.DOTALL
)
_PLACE: Final = re.compile(r"(?:[Pp]arsing\s+)?\[(?P<source>[^\]]*):(?P<line>\d+)\]\s*:\s*")
_IN_TEXT: Final = re.compile(r"(?:at line |\bfile '[^']*' line )(?P<line>\d+)|\[(?P<source>[^\]\s]*):(?P<also>\d+)\]")
_POSITION: Final = re.compile(r" at position (?P<column>\d+)[:.]?$")
# Summaries that follow every rejection and name no problem.
_SUMMARY: Final = re.compile(
    r"Error\(s\) found in configuration file : .*|Fatal errors found in configuration\.?|Errors in configuration file.*"
)
_VERDICTS: Final = ("Warnings were found.", "Configuration file is valid", "Configuration file has no error")


OUTPUT_LIMIT: Final = 1 << 20
"""Bytes of output that are kept; the rest is discarded."""
MOST_WARNINGS: Final = 100
"""Number of warnings that are kept, so that very many of them hide no error behind them."""
_WARNING: Final = (b"[WARNING]", b"[DIAG/WARNING]")


class BoundedOutput:
    """Collects the output of `haproxy -c`, without the warnings beyond the first ones."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._line = bytearray()
        """The line that has not ended; what is kept of it."""
        self._warnings = 0
        self._is_dropped = False
        """Whether the last line is of a warning that is not kept."""

    def take(self, chunk: bytes | bytearray) -> None:
        """Take the next part of the output."""
        first, *rest = chunk.split(b"\n")
        self._extend(first)
        for line in rest:
            self._end_line()
            self._extend(line)

    def text(self) -> str:
        """Return what is kept, once the output has ended."""
        self._end_line()
        return self._kept.decode(errors="replace")

    def _extend(self, part: bytes | bytearray) -> None:
        self._line += part[: OUTPUT_LIMIT - len(self._line)]

    def _end_line(self) -> None:
        if self._line.startswith(b"["):
            is_warning = self._line.startswith(_WARNING)
            self._warnings += is_warning
            self._is_dropped = is_warning and self._warnings > MOST_WARNINGS
        if not self._is_dropped:
            self._kept += (self._line + b"\n")[: OUTPUT_LIMIT - len(self._kept)]
        self._line.clear()


class CheckOutput(msgspec.Struct, frozen=True):
    """Errors and warnings of `haproxy -c`."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def parse_check_output(text: str) -> CheckOutput:
    """Parse the standard error of `haproxy -c`.

    Lines that continue a message become its excerpt. File and line are those
    that HAProxy prints. Text without any message, for example of the dynamic
    linker, becomes one error if there is no other.
    """
    errors: list[Problem] = []
    warnings: list[Problem] = []
    stray: list[str] = []
    for message, *more in _messages(text, stray):
        match = _MESSAGE.fullmatch(message)
        if match is None:
            continue
        body = match["text"].removeprefix("config : ").strip()
        if _SUMMARY.fullmatch(body):
            continue
        if match["level"] == "ALERT":
            errors.append(_problem(body, more))
        elif match["level"] in {"WARNING", "DIAG/WARNING"}:
            warnings.append(_problem(body, more))
    if not errors and not warnings and stray:
        errors.append(Problem(message=stray[0], excerpt="\n".join(stray[1:])))
    return CheckOutput(tuple(errors), tuple(warnings))


def _messages(text: str, stray: list[str]) -> list[list[str]]:
    """Group the lines of *text* by message; lines before the first message go to *stray*."""
    groups: list[list[str]] = []
    for line in text.splitlines():
        if _MESSAGE.fullmatch(line):
            groups.append([line])
        elif line.startswith(_VERDICTS) or not line.strip():
            continue
        elif groups:
            groups[-1].append(line)
        else:
            stray.append(line)
    return groups


def _problem(body: str, more: list[str]) -> Problem:
    source, line = "", 0
    # Some messages contain their position twice.
    while (place := _PLACE.match(body)) is not None:
        source, line = place["source"], int(place["line"])
        body = body[place.end() :]
    if body.endswith(" :") and more:
        # Newer versions print the problem on the next line.
        body, more = f"{body} {more[0].strip()}", more[1:]
    if not line and (place := _IN_TEXT.search(body)) is not None:
        source, line = place["source"] or "", int(place["line"] or place["also"])
    position = _POSITION.search(body)
    excerpt = "\n".join(part.removeprefix("   | ") for part in more)
    return Problem(
        message=body.rstrip(":"),
        source=source,
        line=line,
        column=int(position["column"]) if position is not None else 0,
        excerpt=excerpt,
    )
