"""The browser for the tests: one of the system, or one that was fetched."""

from pathlib import Path

import pytest

from tests.support.processes import chromium


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "haptic-trio" / "chromium"


def write_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", chromium.SYSTEM_NAMES)
def test_chromium_of_the_system_is_found_by_each_of_its_names(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program = write_program(tmp_path / "bin" / name)
    monkeypatch.setenv("PATH", str(program.parent))

    assert chromium.find_chromium() == program


def test_fetched_chromium_is_found_where_the_system_has_none(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium.find_chromium() is None

    program = write_program(cache / "usr/lib/chromium" / chromium.PACKAGE)

    assert chromium.find_chromium() == program


def test_only_a_fetched_chromium_gets_library_folders(cache: Path) -> None:
    program = write_program(cache / "usr/lib/chromium" / chromium.PACKAGE)
    library = write_program(cache / "usr/lib/x86_64-linux-gnu" / "libnss3.so")

    assert chromium.library_folders(program) == [library.parent]
    assert chromium.library_folders(Path("/usr/bin/chromium")) == []
    assert chromium.library_folders(Path("/chromium")) == []
