"""Options of the command line become arguments of the suite."""

from pathlib import Path

import pytest

from tests.cluster.control_plane.binaries import BinaryUnavailableError
from tests.conformance.programs import find_programs
from tests.conformance.run import is_whole, parse_arguments, wanted_of, write_documents
from tests.conformance.suite import Run, Wanted, suite_arguments
from tests.conformance.suite_log import Log, Outcome
from tests.conformance.summary import CORE

DIRECTORY = Path("/somewhere")


def arguments_of(*words: str) -> list[str]:
    return suite_arguments(wanted_of(parse_arguments(words)), DIRECTORY / "outcomes", DIRECTORY / "report")


def test_all_tests_run_by_default() -> None:
    arguments = arguments_of()

    assert f"--conformance-profiles={','.join(CORE)}" in arguments
    assert not any(one.startswith(("--only", "--supported-features")) for one in arguments)
    assert is_whole(wanted_of(parse_arguments([])))


def test_named_tests_alone_are_run() -> None:
    arguments = arguments_of("--profile", "GATEWAY-HTTP", "--run", "HTTPRouteWeight,HTTPRouteCORS", "--run", "TLS*")

    assert "--only=HTTPRouteWeight,HTTPRouteCORS,TLS*" in arguments
    assert "--conformance-profiles=GATEWAY-HTTP" in arguments


def test_core_declares_the_core_features_of_the_profiles_and_no_others() -> None:
    arguments = arguments_of("--core", "--profile", "GATEWAY-HTTP")

    assert "--supported-features=Gateway,HTTPRoute,ReferenceGrant" in arguments


@pytest.mark.parametrize("words", [["--core"], ["--run", "HTTPRouteWeight"], ["--profile", "GATEWAY-TLS"]])
def test_part_of_a_run_is_not_the_whole(words: list[str]) -> None:
    assert not is_whole(wanted_of(parse_arguments(words)))


def test_order_of_profiles_does_not_matter_for_the_whole() -> None:
    assert is_whole(Wanted(profiles=tuple(reversed(CORE))))


def test_documents_are_the_official_report_and_a_summary(tmp_path: Path) -> None:
    run = Run(0, [Outcome("Simple", ("Gateway",), False, "passed")], Log({}, {}), "kind: ConformanceReport\n")

    write_documents(run, tmp_path / "conformance", "2.8.25")

    (report,) = (tmp_path / "conformance").glob("experimental-v*-default-report.yaml")
    assert report.read_text() == run.report
    page = (tmp_path / "conformance" / "README.md").read_text()
    assert "- HAProxy: 2.8.25" in page
    assert "| Simple |" in page


def test_suite_that_is_not_built_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAPTIC_CONFORMANCE_CACHE", str(tmp_path))

    with pytest.raises(BinaryUnavailableError, match=r"python -m tests\.conformance\.programs"):
        find_programs()
