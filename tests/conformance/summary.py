"""The outcomes of a run as tables, and whether they are good enough; no I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml

from tests.conformance.suite_log import Log, Outcome, find_reasons

CORE: Final = {
    "GATEWAY-HTTP": frozenset({"Gateway", "ReferenceGrant", "HTTPRoute"}),
    "GATEWAY-GRPC": frozenset({"Gateway", "ReferenceGrant", "GRPCRoute"}),
    "GATEWAY-TLS": frozenset({"Gateway", "ReferenceGrant", "TLSRoute"}),
    "GATEWAY-TCP": frozenset({"Gateway", "ReferenceGrant", "TCPRoute"}),
}
"""The features that each profile has at its core; that for UDP is left out, since HAProxy forwards none."""
_KINDS: Final = frozenset({"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"})
_MESH: Final = "Mesh"
_REASONS: Final = {
    "UDPRoute": "HAProxy's community edition forwards no UDP. Its two ways to receive any lead nowhere: `log-forward`"
    " takes syslog messages alone, and a `quic4@` listener ends HTTP/3.",
    _MESH: "A profile of its own, for what stands beside each Pod. haptic-trio is a gateway.",
}
"""Why tests are skipped that need a feature, or one whose name begins so."""
_MARKS: Final = {"passed": "pass", "failed": "FAIL", "skipped": "skip"}


def is_good(outcomes: Sequence[Outcome], expected: Iterable[str] = ()) -> bool:
    """Whether something ran, nothing failed, and every test of *expected* passed."""
    passed = {one.test for one in outcomes if one.outcome == "passed"}
    return bool(passed) and all(one.outcome != "failed" for one in outcomes) and passed.issuperset(expected)


def counts_by_profile(
    outcomes: Iterable[Outcome], profiles: Iterable[str] = CORE
) -> dict[tuple[str, str], Counter[str]]:
    """Return the counts by profile and level, as the official report counts them.

    A test belongs to the profile of each kind of route that it needs, or to all where it needs none; it is of the
    core where it needs nothing else. Those of a service mesh belong to no supported profile.
    """
    found: dict[tuple[str, str], Counter[str]] = {}
    for one in outcomes:
        features = frozenset(one.features)
        if any(name.startswith(_MESH) for name in features):
            continue
        kinds = features & _KINDS
        for profile in profiles:
            core = CORE[profile]
            if kinds <= core:
                level = "core" if features <= core else "extended"
                found.setdefault((profile, level), Counter())[one.outcome] += 1
    return found


def counts_by_feature(outcomes: Iterable[Outcome]) -> dict[str, Counter[str]]:
    """Return the counts of the tests that need each feature, by its name."""
    found: dict[str, Counter[str]] = {}
    for one in outcomes:
        for feature in one.features:
            found.setdefault(feature, Counter())[one.outcome] += 1
    return dict(sorted(found.items()))


def text_summary(outcomes: Sequence[Outcome], log: Log, profiles: Iterable[str] = CORE) -> str:
    """Return what a terminal shows: each test, why those that failed did, and the counts."""
    lines = []
    for one in outcomes:
        seconds = log.seconds.get(one.test, 0.0)
        lines.append(f"{_MARKS[one.outcome]}  {one.test} ({seconds:.1f} s)")
        if one.outcome == "failed":
            lines += [f"        {reason}" for reason in find_reasons(log.lines.get(one.test, []))]
    lines.append("")
    for (profile, level), counts in sorted(counts_by_profile(outcomes, profiles).items()):
        lines.append(f"{profile:<13} {level:<9} {_reported(counts)}")
    lines.append(f"{'all':<23} {_reported(Counter(one.outcome for one in outcomes))}")
    return "\n".join(lines)


def markdown_summary(outcomes: Sequence[Outcome], log: Log, heading: Mapping[str, str]) -> str:
    """Return a page with the counts by profile and feature, and every test with its outcome."""
    lines = ["# Gateway API conformance", "", "Written by `make conformance`; the official report is beside it.", ""]
    lines += [f"- {name}: {value}" for name, value in heading.items()]
    lines += ["", *_counted("profile", {f"{p}, {level}": c for (p, level), c in _sorted(outcomes)})]
    lines += ["", *_counted("feature", counts_by_feature(outcomes)), ""]
    lines += ["| test | features | outcome | seconds |", "|---|---|---|---|"]
    for one in outcomes:
        seconds = f"{log.seconds[one.test]:.1f}" if one.test in log.seconds else ""
        name = f"{one.test} (provisional)" if one.provisional else one.test
        lines.append(f"| {name} | {', '.join(one.features)} | {one.outcome} | {seconds} |")
    if skipped := [one for one in outcomes if one.outcome == "skipped"]:
        lines += ["", "## What is skipped", ""]
        reported = {one.test: _reason_for(one) for one in skipped}
        for reason in dict.fromkeys(reported.values()):
            names = [test for test, known in reported.items() if known == reason]
            lines += [f"- {reason} {', '.join(names)}"]
    failed = [one for one in outcomes if one.outcome == "failed"]
    if failed:
        lines += ["", "## What failed", ""]
        for one in failed:
            reasons = find_reasons(log.lines.get(one.test, [])) or ["no reason was given"]
            lines += [f"- {one.test}", *(f"  - {_quoted(reason)}" for reason in reasons)]
    return "\n".join(lines) + "\n"


def _reason_for(skipped: Outcome) -> str:
    for feature in skipped.features:
        for beginning, reason in _REASONS.items():
            if feature.startswith(beginning):
                return reason
    return "A feature was not declared."


def profile_lines(report: str) -> list[str]:
    """Return what the official report says of each profile, a line each."""
    decoded: Mapping[str, Any] = yaml.safe_load(report)
    lines = []
    for profile in decoded.get("profiles") or ():
        parts = [f"core {profile['core']['result']}"]
        if extended := profile.get("extended"):
            supported = extended.get("supportedFeatures") or ()
            parts.append(f"extended {extended['result']}, {len(supported)} features")
        lines.append(f"{profile['name']}: {'; '.join(parts)}")
    return lines


def _quoted(text: str) -> str:
    return "`" + text.replace("`", "'") + "`"


def _sorted(outcomes: Sequence[Outcome]) -> list[tuple[tuple[str, str], Counter[str]]]:
    return sorted(counts_by_profile(outcomes).items())


def _counted(title: str, rows: Mapping[str, Counter[str]]) -> list[str]:
    table = [f"| {title} | passed | failed | skipped |", "|---|---|---|---|"]
    for name, counts in rows.items():
        table.append(f"| {name} | {counts['passed']} | {counts['failed']} | {counts['skipped']} |")
    return table


def _reported(counts: Counter[str]) -> str:
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
