"""Sockets are in the directory of their instance, or, if HAProxy cannot use its path, in a private one."""

import stat
from pathlib import Path

import pytest

from haptic_trio.dataplane.local.sockets import PATH_LIMIT, SocketPathError, choose_socket_directory, is_short_enough


def test_a_short_directory_has_its_sockets_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haptic_trio.dataplane.local.sockets.PATH_LIMIT", 4096)
    assert choose_socket_directory(tmp_path) == tmp_path / "run"
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["long" * PATH_LIMIT, "with space", "with,comma", 'with"quote', "ümlaut"])
def test_a_directory_that_haproxy_could_not_name_has_them_elsewhere(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("haptic_trio.dataplane.local.sockets.PATH_LIMIT", len(str(tmp_path)) + 80)
    first = choose_socket_directory(tmp_path / name / "local-1")
    assert first.is_relative_to(tmp_path / "haptic-trio")
    assert is_short_enough(first)
    # The same for the next controller, another one for another instance.
    assert choose_socket_directory(tmp_path / name / "local-1") == first
    assert choose_socket_directory(tmp_path / name / "local-2") != first


def test_a_directory_that_others_may_enter_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haptic_trio.dataplane.local.sockets.PATH_LIMIT", 4096)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "xdg"))
    (tmp_path / "instance/run").mkdir(parents=True)
    (tmp_path / "instance/run").chmod(0o777)
    assert choose_socket_directory(tmp_path / "instance").is_relative_to(tmp_path / "xdg")


def test_missing_directory_for_sockets_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haptic_trio.dataplane.local.sockets.PATH_LIMIT", 1)
    with pytest.raises(SocketPathError, match="too long"):
        choose_socket_directory(tmp_path)
