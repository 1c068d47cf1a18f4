"""Verification of the files of a release: their text, and an installation of the wheel that serves a directory."""

import http.client
import re
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

from haptic_trio import __version__
from tools.release.build import run
from tools.release.project import metadata

SERVE_LIMIT: Final = 60.0
"""Seconds until a change reaches traffic, from a cold start on a busy machine."""
TRAFFIC_LIMIT: Final = 120.0
"""Seconds from an empty directory to traffic, the installation included."""
_TARGET: Final = re.compile(r"\]\(([^)\s]+)\)")


class VerificationError(Exception):
    """A file of the release is not as it must be."""


def faults_of_text(wheel: Path, chart: Path, site: Path) -> Iterator[str]:
    """Yield what is wrong with metadata and pages in the packages; *site* is the built documentation site."""
    with zipfile.ZipFile(wheel) as archive:
        described = HeaderParser().parsestr(archive.read(f"haptic_trio-{__version__}.dist-info/METADATA").decode())
    for name in ("Summary", "Author", "License-Expression", "Requires-Python", "Classifier", "Project-URL", "Keywords"):
        if not described.get(name):
            yield f"{wheel.name}: the metadata have no {name}"
    yield from _faults_of_links(wheel.name, described.get_payload(), site)
    with tarfile.open(chart) as archive:
        page = archive.extractfile("haptic-trio/README.md")
        assert page is not None
        yield from _faults_of_links(chart.name, page.read().decode(), site)


def _faults_of_links(name: str, text: object, site: Path) -> Iterator[str]:
    base = metadata()["urls"]["Documentation"]
    for target in _TARGET.findall(str(text)):
        if "://" not in target and not target.startswith("#"):
            yield f"{name}: {target} is a relative link"
        elif target.startswith(base):
            path = target.removeprefix(base).partition("#")[0]
            if not (site / path / "index.html").is_file() and not (site / path).is_file():
                yield f"{name}: {target} is not a page of the site"


def verify_chart(chart: Path, helm: Path) -> None:
    """Render the packaged *chart* and lint it; raises CalledProcessError."""
    run([helm, "lint", "--strict", chart], cwd=chart.parent)
    run([helm, "template", "edge", chart, "--namespace", "edge", "--kube-version", "1.30.0"], cwd=chart.parent)


def verify_wheel(wheel: Path) -> dict[str, float]:
    """Install *wheel* with its HAProxy as a user would, and serve a directory to traffic, outside of any checkout.

    Returns the seconds that the steps took. Raises CalledProcessError; VerificationError also if it took too long.
    """
    with tempfile.TemporaryDirectory(prefix="haptic-release-") as name:
        folder = Path(name)
        times: dict[str, float] = {}
        with _timed(times, "environment"):
            venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv/bin"
        pip: list[str | Path] = [programs / "python", "-m", "pip", "--disable-pip-version-check"]
        with _timed(times, "installation"):
            run([*pip, "install", "--quiet", f"{wheel}[haproxy]"], cwd=folder)
        run([*pip, "check"], cwd=folder)
        shown = run([programs / "haptic-trio", "--version"], cwd=folder)
        if __version__ not in shown.split():
            raise VerificationError(f"--version says {shown!r}, not {__version__}")
        _serve(programs, folder, times)
        require_speed(times)
        return times


def require_speed(times: Mapping[str, float]) -> None:
    """Raise VerificationError if it took longer than TRAFFIC_LIMIT from an empty directory to traffic."""
    taken = sum(times[name] for name in ("environment", "installation", "start to traffic"))
    if taken > TRAFFIC_LIMIT:
        steps = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in times.items())
        raise VerificationError(
            f"from an empty directory to traffic: {taken:.0f} s, more than {TRAFFIC_LIMIT:.0f} ({steps})"
        )


def _serve(programs: Path, folder: Path, times: dict[str, float]) -> None:
    # Nothing but the environment is on PATH: HAProxy is that of the extra.
    environment = {"PATH": str(programs), "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    run([programs / "haptic-trio", "new", "site"], cwd=folder, **environment)
    http_port, https_port, admin, application = _free_ports(4)
    config, example = folder / "site/config.yaml", folder / "site/example.yaml"
    _replace(config, {"httpPort: 8080": f"httpPort: {http_port}", "httpsPort: 8443": f"httpsPort: {https_port}"})
    _replace(example, {"port: 8000}": f"port: {application}}}"})
    _replace(config, {"port: 8000}": f"port: {application}}}"})
    server = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(application)]
    options = ["--manifests", "site", "--on-exit", "stop", "--listen", f"127.0.0.1:{admin}"]
    log = folder / "serve.log"
    try:
        with _running(server, folder, folder / "application.log", environment), ExitStack() as stack:
            with _timed(times, "start to traffic"):
                serve = [str(programs / "haptic-trio"), "serve", *options]
                stack.enter_context(_running(serve, folder, log, environment))
                _wait_for(http_port, "example.localhost")
            before = len(log.read_text("utf-8"))
            with _timed(times, "change to traffic"):
                _replace(example, {"example.localhost": "changed.localhost"})
                _wait_for(http_port, "changed.localhost")
    except VerificationError as exc:
        raise VerificationError(f"{exc}\n{log.read_text('utf-8')}") from None
    # The controller has ended, so its log is complete.
    logged = log.read_text("utf-8")[before:]
    if "instance updated without reload" not in logged or "instance reloaded" in logged:
        raise VerificationError(f"the change of a host reloaded HAProxy:\n{logged}")


@contextmanager
def _running(command: list[str], folder: Path, log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    times[name] = time.monotonic() - started


def _wait_for(port: int, host: str) -> None:
    """Return once *host* is answered with 200 at the local *port*; raises VerificationError after SERVE_LIMIT."""
    deadline = time.monotonic() + SERVE_LIMIT
    answer = "no answer"
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/", headers={"Host": host})
            answer = str(connection.getresponse().status)
        except OSError as exc:
            answer = str(exc)
        finally:
            connection.close()
        if answer == "200":
            return
        time.sleep(0.05)
    raise VerificationError(f"{host} is not served: {answer}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _replace(file: Path, changes: dict[str, str]) -> None:
    text = file.read_text("utf-8")
    for old, new in changes.items():
        if old not in text:
            raise VerificationError(f"{file.name} has no {old!r}")
        text = text.replace(old, new)
    changed = file.with_name(f".{file.name}")
    changed.write_text(text, "utf-8")
    changed.replace(file)
