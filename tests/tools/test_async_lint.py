"""flake8-async checks what changed, and reports a file until it is mended."""

import subprocess
from pathlib import Path

import pytest

from tools.async_lint import lint

GOOD = "import trio\n\n\nasync def wait() -> None:\n    await trio.sleep_forever()\n"
BAD = "import trio\n\n\nasync def wait() -> None:\n    with trio.move_on_after(1):\n        pass\n"

OPTIONS = ["--enable", "ASYNC100"]

pytestmark = pytest.mark.process


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    (folder / ".gitignore").write_text("ignored.py\n")
    return folder


def test_finding_is_reported_by_each_run(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accepted = checkout.parent / "accepted"
    (checkout / "bad.py").write_text(BAD)
    (checkout / "ignored.py").write_text(BAD)
    for _ in range(2):
        assert lint(checkout, accepted, OPTIONS) == 1
        found = capsys.readouterr().out.splitlines()
        assert [line.partition(" ")[0] for line in found] == ["bad.py:5:10:"]


def test_accepted_file_is_checked_again_when_it_or_the_options_change(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted = checkout.parent / "accepted"
    file = checkout / "sub" / "wait.py"
    file.parent.mkdir()
    file.write_text(BAD)
    assert lint(checkout, accepted, ["--enable", "ASYNC106"]) == 0
    assert lint(checkout, accepted, OPTIONS) == 1
    file.write_text(GOOD)
    assert lint(checkout, accepted, OPTIONS) == 0
    before = sorted(accepted.iterdir())
    assert lint(checkout, accepted, OPTIONS) == 0
    assert sorted(accepted.iterdir()) == before
    file.write_text(BAD)
    assert lint(checkout, accepted, OPTIONS) == 1
    assert "ASYNC100" in capsys.readouterr().out


def test_file_that_only_names_the_project_is_left_out(checkout: Path) -> None:
    accepted = checkout.parent / "accepted"
    (checkout / "named.py").write_text('NAME = "haptic-trio"\n')
    (checkout / "imported.py").write_text("from trio import sleep\n")
    lint(checkout, accepted, OPTIONS)
    assert len(list(accepted.iterdir())) == 1
