"""Parser for the output of a suite run: outcomes, one on each line, and the log of a Go test program; no I/O."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

Verdict = Literal["passed", "failed", "skipped"]
ROOT: Final = "TestConformance"
_RESULT: Final = re.compile(r"\s*--- (?:PASS|FAIL|SKIP): (?P<test>\S+) \((?P<seconds>[\d.]+)s\)")
_CURRENT: Final = re.compile(r"=== (?:RUN|NAME|CONT|PAUSE)\s+(?P<test>\S+)")
# testify writes these blocks; a message that spans lines is indented further.
_FIELD: Final = re.compile(r"^\s*(?P<name>Error Trace|Error|Messages|Test):\s*(?P<text>.*)$")
_PLACE: Final = re.compile(r"^\s*(?P<place>[\w.-]+\.go:\d+):\s?(?P<text>.*)$")
_STAMP: Final = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.+Z-]+: ")
_WAITED: Final = re.compile(r"deadline exceeded|never satisfied|timed out")
REASON_LIMIT: Final = 300
"""Characters of a reason, and of what was seen last."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of one conformance test."""

    test: str
    features: tuple[str, ...]
    provisional: bool
    outcome: Verdict


class Log(msgspec.Struct, frozen=True):
    """The log of a run, taken apart."""

    seconds: Mapping[str, float]
    """By conformance test."""
    lines: Mapping[str, list[str]]
    """By conformance test; those of the preparation under the empty name."""


def read_outcomes(text: str) -> list[Outcome]:
    """Return what came of the tests, in the order of their names; a line that is cut off is left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Outcome))
        except msgspec.DecodeError:
            continue
    return sorted(found, key=lambda one: one.test)


def read_log(text: str) -> Log:
    """Take the output of a verbose Go test apart: tests that run side by side are distinguished by their names."""
    current = ""
    seconds: dict[str, float] = {}
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := _CURRENT.match(line):
            current = _conformance_test(match["test"])
        elif match := _RESULT.match(line):
            path = match["test"].split("/")
            current = _conformance_test(match["test"])
            if len(path) == 2:
                seconds[current] = float(match["seconds"])
        else:
            lines.setdefault(current, []).append(line)
    return Log(seconds, lines)


def find_reasons(lines: Iterable[str]) -> list[str]:
    """Return why a test failed, each reason once: what its assertions say, or, without any, the last thing it said."""
    reasons: list[str] = []
    field, last = "", ""
    parts: dict[str, list[str]] = {}

    def finish() -> None:
        text = ": ".join(" ".join(parts[name]) for name in ("Messages", "Error") if parts.get(name))
        if text:
            # After a time-out, the last observation says more than the time-out.
            seen = f" ({_shortened(last)})" if last and _WAITED.search(text) else ""
            reasons.append(_shortened(text) + seen)
        parts.clear()

    for line in lines:
        if match := _FIELD.match(line):
            field = match["name"]
            if field == "Error Trace":
                finish()
            parts.setdefault(field, []).append(match["text"].strip())
        elif match := _PLACE.match(line):
            finish()
            field = ""
            said = _STAMP.sub("", match["text"].strip())
            last = f"{match['place']}: {said}" if said else last
        elif field and line.strip():
            parts[field].append(line.strip())
    finish()
    if not reasons and last:
        reasons.append(_shortened(last))
    return list(dict.fromkeys(reasons))


def _conformance_test(path: str) -> str:
    """Return the conformance test that *path*, such as `TestConformance/Name/part_of_it`, belongs to."""
    root, _, rest = path.partition("/")
    return rest.partition("/")[0] if root == ROOT else ""


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= REASON_LIMIT else f"{text[: REASON_LIMIT - 1]}…"
