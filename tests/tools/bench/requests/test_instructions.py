"""The count of instructions, as a person calls it; the count itself takes valgrind and a minute."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.bench.requests.instructions import main


def test_without_valgrind_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    ended = CliRunner().invoke(main)

    assert (ended.exit_code, ended.stderr) == (2, "error: install valgrind to count instructions\n")
