import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.cli.commands import invoke_cli, replace_in
from tests.validation_tests.builders import SITES, WEB, config_map

EQUALS = """\
web:
  description: One site.
  fixtures:
    sites:
      - SITE
  assertions:
    - {type: contains, text: backend web}
    - type: equals
      target: host.map
      # What is rendered.
      expected: |
        old.example.com old
plain: {assertions: [{type: contains, text: maxconn 100}]}
""".replace("SITE", json.dumps(WEB))

pytestmark = [pytest.mark.haproxy, pytest.mark.usefixtures("haproxy_binary")]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Manifests whose configuration has two tests, one of which fails."""
    text = "".join(f"    {line}\n" for line in config_map(EQUALS)["data"]["config"].splitlines())
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "config.yaml").write_text(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: haptic-trio\ndata:\n  config: |\n{text}"
    )
    return tmp_path / "site"


def test_a_test_that_fails_is_shown_with_its_place_and_a_diff(site: Path) -> None:
    result = invoke_cli("test", "--manifests", site)

    assert result.exit_code == 1
    assert "✗ web" in result.stdout
    assert "host.map differs" in result.stdout
    assert "-old.example.com old" in result.stdout
    assert "+web.example.com web" in result.stdout
    assert f"{site / 'config.yaml'}:" in result.stdout
    assert "✓ plain" in result.stdout
    assert "1 of 2 tests passed, 3 assertions" in result.stdout
    assert result.stderr == ""
    assert "\x1b" not in result.stdout


def test_update_writes_what_is_there_and_nothing_else(site: Path) -> None:
    before = (site / "config.yaml").read_text()

    result = invoke_cli("test", "--manifests", site, "--update")

    assert result.exit_code == 0, result.output
    assert "2 of 2 tests passed" in result.stdout
    assert "1 expected text rewritten" in result.stdout
    after = (site / "config.yaml").read_text()
    assert after == before.replace("old.example.com old", "web.example.com web")
    assert invoke_cli("test", "--manifests", site, "--update").exit_code == 0
    assert (site / "config.yaml").read_text() == after


def test_a_filter_chooses_tests_by_part_of_a_name_or_by_pattern(site: Path) -> None:
    for pattern in ("lai", "p*n"):
        result = invoke_cli("test", "--manifests", site, "--filter", pattern)
        assert result.exit_code == 0
        assert "1 of 1 tests passed" in result.stdout

    assert "2 tests" in invoke_cli("test", "--manifests", site, "--filter", "web", "--filter", "plain").stdout


def test_a_filter_that_matches_nothing_is_not_success(site: Path) -> None:
    result = invoke_cli("test", "--manifests", site, "--filter", "nothing")

    assert result.exit_code == 2
    assert "no test matches nothing" in result.stderr


def test_json_has_everything(site: Path) -> None:
    result = invoke_cli("test", "--manifests", site, "--output", "json", "--coverage", "--slowest", "2")

    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert report["passed"] is False
    web, plain = report["tests"]
    assert (web["name"], web["verdict"], web["description"]) == ("web", "failed", "One site.")
    assert web["assertions"][1]["diff"].endswith("+web.example.com web")
    assert plain["assertions"][0]["verdict"] == "passed"
    assert report["coverage"]["covered"] > 0.5
    assert {one["name"] for one in report["coverage"]["templates"]} == {"haproxy.cfg", "maps/host.map"}
    assert len(report["slowest"]) == 2


def test_junit_goes_to_standard_output_or_to_a_file(site: Path, tmp_path: Path) -> None:
    result = invoke_cli("test", "--manifests", site, "--output", "junit", "--junit", tmp_path / "junit.xml")

    assert result.stdout == (tmp_path / "junit.xml").read_text()
    root = ElementTree.fromstring(result.stdout)
    assert root.attrib["tests"] == "2"
    assert root.attrib["failures"] == "1"
    (failure,) = root.iter("failure")
    assert "+web.example.com web" in (failure.text or "")
    assert [case.attrib["name"] for case in root.iter("testcase")] == ["web", "plain"]


def test_coverage_and_times_are_shown_on_request(site: Path) -> None:
    result = invoke_cli("test", "--manifests", site, "--coverage", "--slowest", "1", "--verbose")

    assert "of lines and branches" in result.stdout
    assert "slowest templates" in result.stdout
    assert "✓ haproxy.cfg contains 'backend web'" in result.stdout


def test_a_file_of_tests_is_for_the_configuration_beside_it(site: Path, tmp_path: Path) -> None:
    more = tmp_path / "more" / "more.yaml"
    more.parent.mkdir()
    more.write_text(
        "extraContext: {greeting: bye}\nvalidationTests:\n  more:\n    assertions:\n"
        "      - {type: contains, text: X-Greeting 'bye'}\n"
        "      - type: equals\n        section: global\n        expected: wrong\n"
    )
    replace_in(site / "config.yaml", "old.example.com old", "web.example.com web")

    result = invoke_cli("test", "--manifests", site, "--tests", more.parent)
    assert result.exit_code == 1
    assert "2 of 3 tests passed" in result.stdout
    assert f"{more}:6" in result.stdout

    result = invoke_cli("test", "--manifests", site, "--tests", more, "--update")
    assert result.exit_code == 0, result.output
    tests = yaml.safe_load(more.read_text())["validationTests"]["more"]["assertions"]
    assert tests[1]["expected"] == "global\n    maxconn 100\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("type: contains, text: backend", "type: contans, text: backend", "did you mean `contains`?"),
        ("    sites:\n", "    site:\n", "no watched resource 'site'"),
        ("backend web}", "a, pattern: b}", "`text` and `pattern` exclude each other"),
    ],
)
def test_a_test_that_cannot_be_used_is_explained_and_is_not_a_failed_test(
    site: Path, old: str, new: str, message: str
) -> None:
    replace_in(site / "config.yaml", old, new)

    result = invoke_cli("test", "--manifests", site)

    assert result.exit_code == 2
    assert message in result.stderr
    assert f"{site / 'config.yaml'}:" in result.stderr
    assert result.stdout == ""


def test_the_tests_of_a_library_run_without_any_manifests() -> None:
    result = invoke_cli("test", "--library", "base", "--filter", "settings")

    assert result.exit_code == 0, result.output
    assert "library base/tests/frame.yaml" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --manifests DIR or --library NAME"),
        (("--library", "bse"), "did you mean `base`?"),
        (("--library", "base", "--update", "--coverage"), "--update excludes --coverage"),
        (("--library", "base", "--haproxy", "no-such-program"), "no such executable"),
    ],
)
def test_wrong_usage_is_not_a_failed_test(arguments: tuple[str, ...], message: str) -> None:
    result = invoke_cli("test", *arguments)

    assert result.exit_code == 2
    assert message in result.stderr


def test_a_configuration_without_tests_is_not_success(tmp_path: Path) -> None:
    text = "".join(f"    {line}\n" for line in SITES.splitlines())
    (tmp_path / "config.yaml").write_text(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: haptic-trio}}\ndata:\n  config: |\n{text}"
    )

    result = invoke_cli("test", "--manifests", tmp_path)

    assert result.exit_code == 2
    assert "no tests found" in result.stderr


def test_validate_runs_the_tests_too(site: Path) -> None:
    result = invoke_cli("validate", "--manifests", site)

    assert result.exit_code == 1
    assert "the test 'web' (One site) fails: host.map is as expected: host.map differs" in result.stdout
    assert "tests:         1 problem" in result.stdout

    replace_in(site / "config.yaml", "old.example.com old", "web.example.com web")
    result = invoke_cli("validate", "--manifests", site)
    assert "tests:         ok (2 tests)" in result.stdout


def test_update_passes_over_what_is_beside_the_configuration(site: Path) -> None:
    (site / "a-binary.yaml").write_bytes(b"\xff\xfe\x00")
    (site / "a-broken.yaml").write_text("a: [\n")
    os.mkfifo(site / "a-pipe.yaml")

    result = invoke_cli("test", "--manifests", site, "--update")

    assert result.exit_code == 0, result.output
    assert "web.example.com web" in (site / "config.yaml").read_text()


def test_update_leaves_a_link_and_the_ends_of_lines_as_they_are(site: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    real.write_bytes((site / "config.yaml").read_bytes().replace(b"\n", b"\r\n"))
    (site / "config.yaml").unlink()
    (site / "config.yaml").symlink_to(real)
    before = real.read_bytes()

    result = invoke_cli("test", "--manifests", site, "--update")

    assert result.exit_code == 0, result.output
    assert (site / "config.yaml").is_symlink()
    assert real.read_bytes() == before.replace(b"old.example.com old", b"web.example.com web")


def test_what_cannot_be_updated_is_named_by_its_line_in_the_file(tmp_path: Path) -> None:
    invoke_cli("new", tmp_path / "site")
    config = tmp_path / "site" / "config.yaml"
    replace_in(config, "- type: haproxy_valid", "- {type: equals, section: backend no-route, expected: x}")
    line = next(at for at, text in enumerate(config.read_text().splitlines(), 1) if "expected: x" in text)

    result = invoke_cli("test", "--manifests", tmp_path / "site", "--update")

    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {config}:{line}: write the assertion without braces to update it\n",
    )


def test_json_has_the_place_of_a_test_in_the_file(tmp_path: Path) -> None:
    invoke_cli("new", tmp_path / "site")
    config = tmp_path / "site" / "config.yaml"
    line = next(at for at, text in enumerate(config.read_text().splitlines(), 1) if "example-is-served:" in text)

    document = json.loads(invoke_cli("test", "--manifests", tmp_path / "site", "--output", "json").stdout)
    junit = invoke_cli("test", "--manifests", tmp_path / "site", "--output", "junit").stdout

    assert (document["tests"][0]["source"], document["tests"][0]["line"]) == (str(config), line)
    assert f'file="{config}" line="{line}"' in junit


def test_invalid_test_files_are_reported(site: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "empty" / "pipe.yaml")
    (tmp_path / "empty" / ".#open.yaml").symlink_to("somebody@elsewhere")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")

    empty = invoke_cli("test", "--manifests", site, "--tests", tmp_path / "empty")
    binary = invoke_cli("test", "--manifests", site, "--tests", tmp_path / "binary.yaml")

    assert (empty.exit_code, binary.exit_code) == (2, 2)
    assert "no test files" in empty.stderr
    assert f"{tmp_path / 'binary.yaml'}: error: is not UTF-8" in binary.stderr


def test_templates_of_ones_own_come_first_in_the_coverage(tmp_path: Path) -> None:
    invoke_cli("new", tmp_path / "site")
    replace_in(
        tmp_path / "site" / "config.yaml",
        "http-response set-header X-Served-By haptic-trio",
        "{% if httpPort == 1 %}http-response set-header X-Served-By haptic-trio{% endif %}# X-Served-By",
    )

    shown = invoke_cli("test", "--manifests", tmp_path / "site", "--coverage").stdout.splitlines()

    (first,) = [at for at, line in enumerate(shown) if "templates rendered" in line]
    assert shown[first].endswith("of the configuration's own templates")
    assert "frontend-rules-served-by  never 1 true" in shown[first + 1]
    document = json.loads(invoke_cli("test", "--manifests", tmp_path / "site", "--coverage", "--output", "json").stdout)
    own = {one["name"] for one in document["coverage"]["templates"] if one["own"]}
    assert own == {"frontend-rules-served-by"}
