"""Verdicts of the parser and of real HAProxy on the corpus: the table of their disagreements, and docs/grammar.md.

    python -m tests.haproxy.corpus_verdicts 2.8 3.2 3.4     writes the tables and the page

A disagreement that no pattern of `corpus/reasons.txt` explains is listed as unexplained,
and then the test fails.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from haptic_trio.haproxy.config.parser import ConfigSyntaxError, parse_config
from haptic_trio.haproxy.grammar.keywords import Keywords, keywords_of
from tests.haproxy.corpus_cases import FOLDER, Case, all_cases
from tests.support.processes.haproxy_versions import provide

VERSIONS: Final = ("2.8", "3.2", "3.4")
DISAGREEMENTS: Final = FOLDER / "disagreements.txt"
WHY: Final = FOLDER / "reasons.txt"
ACCEPTED: Final = FOLDER / "accepted.txt"
PAGE: Final = Path(__file__).parents[2] / "docs" / "grammar.md"
UNEXPLAINED: Final = "unexplained"


class Verdict(NamedTuple):
    """Who accepts a case, and what the one who does not says."""

    case: Case
    haproxy: bool
    parser: bool
    message: str


class Disagreement(NamedTuple):
    """A case that only one of the two rejects."""

    rejected_by: str
    """`haproxy` or `us`."""
    reason: str
    name: str


def judge(binary: Path, keywords: Keywords, cases: Sequence[Case]) -> list[Verdict]:
    """Check all *cases* with *binary* and with the parser; two processes at a time."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder, ThreadPoolExecutor(2) as pool:

        def ask(numbered: tuple[int, Case]) -> tuple[bool, str]:
            path = Path(folder) / f"{numbered[0]}.cfg"
            path.write_bytes(numbered[1].text.encode(errors="surrogateescape"))
            command = [str(binary), "-c", "-f", path.name]
            run = subprocess.run(command, cwd=folder, env={}, capture_output=True, check=False, timeout=60)
            said = (run.stdout + run.stderr).decode(errors="replace")
            # 2: valid, but nothing to listen on.
            return run.returncode in {0, 2}, next((line for line in said.splitlines() if "[ALERT]" in line), "")

        answers = list(pool.map(ask, enumerate(cases)))
    return [
        Verdict(case, accepted, not problem, problem if accepted else said)
        for case, (accepted, said) in zip(cases, answers, strict=True)
        for problem in [_first_problem(case.text, keywords)]
    ]


def _first_problem(text: str, keywords: Keywords) -> str:
    try:
        parse_config(text, keywords=keywords)
    except ConfigSyntaxError as exc:
        return str(exc.problems[0])
    return ""


@cache
def _patterns() -> list[tuple[str, str, str]]:
    """Return who rejects, why, and by which pattern that is recognised."""
    patterns = []
    who = why = ""
    for line in WHY.read_text().splitlines():
        if line.startswith("== "):
            who, _, why = line.removeprefix("== rejected only by ").partition(": ")
        elif why:
            patterns.append((who, why, line))
    return patterns


def explain(verdicts: Iterable[Verdict]) -> list[Disagreement]:
    """Return the disagreements among *verdicts*, each with its reason."""
    found = []
    for verdict in verdicts:
        if verdict.haproxy == verdict.parser:
            continue
        rejected_by = "us" if verdict.haproxy else "haproxy"
        text = f"{verdict.case.name} | {verdict.message}"
        reasons = (why for who, why, pattern in _patterns() if who == rejected_by and re.search(pattern, text))
        reason = next(reasons, UNEXPLAINED)
        found.append(Disagreement(rejected_by, reason, verdict.case.name))
    return found


def accepted_by_area(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Return how many cases of each area HAProxy accepts."""
    return dict(Counter(verdict.case.area for verdict in verdicts if verdict.haproxy))


def read_disagreements() -> dict[str, set[Disagreement]]:
    """Return the listed disagreements by version."""
    listed: dict[str, set[Disagreement]] = {version: set() for version in VERSIONS}
    rejected_by = reason = ""
    for line in DISAGREEMENTS.read_text().splitlines():
        if line.startswith("== "):
            rejected_by, _, reason = line.removeprefix("== rejected only by ").partition(": ")
        elif line:
            versions, _, name = line.partition(" | ")
            for version in versions.split():
                listed[version].add(Disagreement(rejected_by, reason, name))
    return listed


def read_accepted() -> dict[str, dict[str, int]]:
    """Return by version how many cases of each area HAProxy accepts."""
    rows = [line.rsplit(" ", len(VERSIONS)) for line in ACCEPTED.read_text().splitlines()]
    return {
        version: {area: int(counts[index]) for area, *counts in rows if int(counts[index])}
        for index, version in enumerate(VERSIONS)
    }


def render_page(cases: Sequence[Case]) -> str:
    """Return docs/grammar.md, from the corpus and its tables."""
    return "\n".join(_page_lines(cases, read_disagreements(), read_accepted())) + "\n"


def _page_lines(
    cases: Sequence[Case], listed: Mapping[str, set[Disagreement]], accepted: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    yield (FOLDER / "page.md").read_text().rstrip()
    yield ""
    yield "| about | cases | " + " | ".join(f"{version}: accepted | differing" for version in VERSIONS) + " |"
    yield "|---" * (2 + 2 * len(VERSIONS)) + "|"
    area_of = {case.name: case.area for case in cases}
    differing = {version: Counter(area_of.get(one.name, "") for one in found) for version, found in listed.items()}
    totals = Counter(case.area for case in cases)
    for area in sorted(totals):
        cells = (f"{accepted[version].get(area, 0)} | {differing[version][area]}" for version in VERSIONS)
        yield f"| {area} | {totals[area]} | " + " | ".join(cells) + " |"
    cells = (f"{sum(accepted[version].values())} | {differing[version].total()}" for version in VERSIONS)
    yield f"| **all** | {totals.total()} | " + " | ".join(cells) + " |"
    yield from ["", "## Disagreements", ""]
    yield "| rejected only by | reason | " + " | ".join(VERSIONS) + " | for example |"
    yield "|---" * (3 + len(VERSIONS)) + "|"
    for rejected_by, reason in _reasons(listed):
        names = {
            version: sorted(one.name for one in found if (one.rejected_by, one.reason) == (rejected_by, reason))
            for version, found in listed.items()
        }
        example = next(one for found in reversed(names.values()) for one in found).replace("|", "\\|")
        counts = " | ".join(str(len(names[version])) for version in VERSIONS)
        who = "HAProxy" if rejected_by == "haproxy" else "the parser"
        yield f"| {who} | {reason} | {counts} | `{example}` |"


def _reasons(listed: Mapping[str, set[Disagreement]]) -> list[tuple[str, str]]:
    present = {(one.rejected_by, one.reason) for found in listed.values() for one in found}
    ordered = [(who, why) for who, why, _ in _patterns()]
    return [*dict.fromkeys(one for one in ordered if one in present), *((w, r) for w, r in present if r == UNEXPLAINED)]


def main(versions: Sequence[str]) -> None:
    """Judge the corpus with *versions*, which are all of `VERSIONS`, and write tables and page."""
    cases = all_cases()
    found: dict[Disagreement, list[str]] = {}
    accepted: dict[str, dict[str, int]] = {}
    for version in versions:
        verdicts = judge(provide(version) / "haproxy", keywords_of(version), cases)
        accepted[version] = accepted_by_area(verdicts)
        for one in explain(verdicts):
            found.setdefault(one, []).append(version)
    lines = []
    for rejected_by, reason in _reasons({version: set(found) for version in VERSIONS}):
        lines.append(f"== rejected only by {rejected_by}: {reason}")
        lines += sorted(
            f"{' '.join(owners)} | {one.name}" for one, owners in found.items() if one[:2] == (rejected_by, reason)
        )
    DISAGREEMENTS.write_text("\n".join(lines) + "\n")
    areas = sorted({case.area for case in cases})
    ACCEPTED.write_text(
        "".join(f"{area} {' '.join(str(accepted[one].get(area, 0)) for one in versions)}\n" for area in areas)
    )
    PAGE.write_text(render_page(cases))


if __name__ == "__main__":
    main(sys.argv[1:] or VERSIONS)
