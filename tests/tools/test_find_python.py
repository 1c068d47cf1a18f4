"""The script that finds another Python for `make test-pythons`: PATH first, then pyenv, else a reason."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "find-python"

pytestmark = pytest.mark.process


def write_program(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def find(folder: Path) -> subprocess.CompletedProcess[str]:
    """Look for Python 3.99 with *folder* before the tools of the system."""
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run([SCRIPT, "3.99"], env=environment, capture_output=True, text=True, check=False)


def test_python_of_path_comes_first(tmp_path: Path) -> None:
    write_program(tmp_path / "python3.99", "echo /opt/python3.99")
    write_program(tmp_path / "pyenv", "echo other")
    assert find(tmp_path).stdout == "/opt/python3.99\n"


def test_version_that_pyenv_has_without_choosing_it_is_found(tmp_path: Path) -> None:
    write_program(tmp_path / "python3.99", "echo 'pyenv: python3.99: command not found' >&2; exit 127")
    write_program(
        tmp_path / "pyenv",
        'case "$1" in whence) printf "3.99.0\\n3.99.1\\n" ;; which) echo "/pyenv/$PYENV_VERSION/$2" ;; esac',
    )
    assert find(tmp_path).stdout == "/pyenv/3.99.1/python3.99\n"


def test_absent_version_is_an_error_with_the_reason(tmp_path: Path) -> None:
    write_program(tmp_path / "pyenv", "exit 1")
    done = find(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "PATH has no python3.99, and no pyenv has one: install Python 3.99\n"
