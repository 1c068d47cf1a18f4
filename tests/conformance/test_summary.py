"""A run is judged and reported by profile, level and feature."""

import yaml

from tests.conformance.suite_log import Log, Outcome, Verdict
from tests.conformance.summary import (
    counts_by_feature,
    counts_by_profile,
    is_good,
    markdown_summary,
    profile_lines,
    text_summary,
)

FAILED = Log({"Mirror": 2.5}, {"Mirror": ["    http.go:1: 2026-11-21T14:08:15.1Z: no `mirror` came"]})


def outcome(test: str, *features: str, verdict: Verdict = "passed", provisional: bool = False) -> Outcome:
    return Outcome(test, ("Gateway", *features), provisional, verdict)


OUTCOMES = [
    outcome("Attached", "HTTPRoute"),
    outcome("Isolation", "GatewayHTTPListenerIsolation", verdict="skipped"),
    outcome("Mirror", "HTTPRoute", "HTTPRouteRequestMirror", verdict="failed", provisional=True),
    outcome("Passthrough", "TLSRoute"),
]


def test_test_belongs_to_the_profile_of_its_routes_and_without_any_to_all() -> None:
    counts = counts_by_profile(OUTCOMES)

    assert counts["GATEWAY-HTTP", "core"] == {"passed": 1}
    assert counts["GATEWAY-TLS", "core"] == {"passed": 1}
    assert counts["GATEWAY-HTTP", "extended"] == {"failed": 1, "skipped": 1}
    assert counts["GATEWAY-TCP", "extended"] == {"skipped": 1}
    assert ("GATEWAY-TCP", "core") not in counts


def test_tests_of_a_mesh_belong_to_no_supported_profile() -> None:
    assert counts_by_profile([outcome("Mesh", "HTTPRoute", "MeshClusterIPMatching", verdict="skipped")]) == {}


def test_test_counts_for_each_of_its_features() -> None:
    counts = counts_by_feature(OUTCOMES)

    assert counts["Gateway"] == {"passed": 2, "skipped": 1, "failed": 1}
    assert counts["HTTPRouteRequestMirror"] == {"failed": 1}
    assert list(counts) == sorted(counts)


def test_run_is_good_when_something_passed_and_nothing_failed() -> None:
    passed = [one for one in OUTCOMES if one.outcome != "failed"]

    assert is_good(passed)
    assert is_good(passed, expected=["Attached"])
    assert not is_good(passed, expected=["Isolation"])
    assert not is_good(OUTCOMES)
    assert not is_good([])


def test_terminal_shows_why_a_test_failed() -> None:
    text = text_summary(OUTCOMES, FAILED)

    assert "FAIL  Mirror (2.5 s)\n        http.go:1: no `mirror` came" in text
    assert "GATEWAY-HTTP  core      1 passed, 0 failed, 0 skipped" in text
    assert text.endswith("2 passed, 1 failed, 1 skipped")


def test_page_has_a_row_for_each_test_and_the_reasons() -> None:
    page = markdown_summary(OUTCOMES, FAILED, {"Gateway API": "v1"})

    assert "- Gateway API: v1" in page
    assert "| GATEWAY-HTTP, core | 1 | 0 | 0 |" in page
    assert "| HTTPRouteRequestMirror | 0 | 1 | 0 |" in page
    assert "| Mirror (provisional) | Gateway, HTTPRoute, HTTPRouteRequestMirror | failed | 2.5 |" in page
    assert "- Mirror\n  - `http.go:1: no 'mirror' came`" in page


def test_page_says_why_a_test_was_skipped() -> None:
    skipped = [
        outcome("MeshBasic", "MeshClusterIPMatching", verdict="skipped"),
        outcome("UDP", "UDPRoute", verdict="skipped"),
        outcome("MeshPorts", "HTTPRoute", "Mesh", verdict="skipped"),
        outcome("Isolation", "GatewayHTTPListenerIsolation", verdict="skipped"),
    ]

    [title, blank, *lines] = markdown_summary(skipped, Log({}, {}), {}).split("\n")[-6:-1]

    assert (title, blank) == ("## What is skipped", "")
    assert lines[0].endswith("haptic-trio is a gateway. MeshBasic, MeshPorts")
    assert "forwards no UDP" in lines[1]
    assert lines[1].endswith(" UDP")
    assert lines[2] == "- A feature was not declared. Isolation"


def test_official_report_is_summarised_in_a_line_per_profile() -> None:
    core = {"result": "success", "statistics": {"Passed": 3}}
    extended = {"result": "partial", "supportedFeatures": ["A", "B"]}
    report = {"profiles": [{"name": "GATEWAY-HTTP", "core": core, "extended": extended}, {"name": "X", "core": core}]}

    assert profile_lines(yaml.safe_dump(report)) == [
        "GATEWAY-HTTP: core success; extended partial, 2 features",
        "X: core success",
    ]
