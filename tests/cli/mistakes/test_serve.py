"""Typical mistakes while `serve` runs: the log names place and fix once, although the controller tries again."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.cli.mistakes.commands import KUBECONFIG, edit, make_site

pytestmark = [pytest.mark.haproxy, pytest.mark.process]

TIME_LIMIT = 60.0
SERVING = "Serving http://127.0.0.1:"


@pytest.fixture
def holder() -> Iterator[socket.socket]:
    """A socket that has the port that the site names."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: socket.socket, haproxy_binary: Path) -> int:
    """The port of HAProxy in the site of the current directory; it is free until *holder* listens."""
    make_site(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAPTIC_HAPROXY", str(haproxy_binary))
    number = int(holder.getsockname()[1])
    edit("config.yaml", ("httpPort: 8080", f"httpPort: {number}"))
    return number


def command(*source: str, state: str = "state") -> list[str]:
    """Return the command line of `serve` for the site, or for another *source*."""
    given = source or ("--manifests", "site")
    return [
        *(sys.executable, "-m", "haptic_trio", "serve", *given, "--state-dir", state),
        *("--listen", "127.0.0.1:0", "--on-exit", "stop"),
    ]


@asynccontextmanager
async def serving(*expected: str, source: tuple[str, ...] = (), state: str = "state") -> AsyncIterator[str]:
    """Run `serve`, and yield its log, with single spaces, as soon as it has all of *expected*; stop it afterwards."""
    process = await trio.lowlevel.open_process(command(*source, state=state), stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        log = ""
        with trio.move_on_after(TIME_LIMIT):
            # Without data, the process has ended.
            while data := await process.stderr.receive_some():
                log += data.decode(errors="replace")
                if all(text in " ".join(log.split()) for text in expected):
                    break
        missing = [text for text in expected if text not in " ".join(log.split())]
        assert not missing, log
        assert "Traceback" not in log
        yield " ".join(log.split())
    finally:
        with trio.CancelScope(shield=True):
            process.send_signal(signal.SIGINT)
            async for _ in process.stderr:
                pass
            code = await process.wait()
    assert code == 0


async def serve_until(*expected: str, source: tuple[str, ...] = ()) -> str:
    """Run `serve` until its log has all of *expected*; return the log, with single spaces."""
    async with serving(*expected, source=source) as log:
        return log


FIELDS = {
    ("ingressClassName", "ingressClasName"): (
        "WARNING problems reported source=site/example.yaml site/example.yaml:12: spec.ingressClasName: unknown field"
        " [Ingress default/example] (did you mean `ingressClassName`?)"
    ),
    ("kind: Ingress\n", "kind: Ingres\n"): (
        "site/example.yaml:9: kind: there is no kind 'Ingres' in networking.k8s.io/v1 [Ingres default/example]"
        " (did you mean `Ingress`?)"
    ),
    ("pathType: Prefix", "pathType: Prefx"): (
        "site/example.yaml:18: spec.rules[0].http.paths[0].pathType: 'Prefx' is not one of Exact, Prefix,"
    ),
    ("networking.k8s.io/v1\nkind: Ingress\n", "networking.k8s.io/v1beta1\nkind: Ingress\n"): (
        "site/example.yaml:8: apiVersion: Ingress is not served in networking.k8s.io/v1beta1 [Ingress default/example]"
        " (write apiVersion: networking.k8s.io/v1)"
    ),
}


def write_mistakes() -> list[str]:
    """Write a file for each of FIELDS; return the lines of the log about them."""
    site, lines = Path("site/example.yaml").read_text(), []
    for number, (change, line) in enumerate(FIELDS.items()):
        assert change[0] in site
        text = site.replace(*change).replace("name: example", f"name: web{number}")
        Path(f"site/web{number}.yaml").write_text(text.replace("name: haptic}", f"name: class{number}}}"))
        lines.append(
            line.replace("example.yaml", f"web{number}.yaml").replace("default/example", f"default/web{number}")
        )
    return lines


@pytest.mark.usefixtures("port")
async def test_mistakes_in_fields_and_snippets_are_logged_once(holder: socket.socket) -> None:
    holder.close()
    edit(
        "config.yaml",
        ("frontend-rules-served-by", "frontend-rule-served-by"),
        (", pattern: X-Served-By", ", pattern: http"),
    )
    snippet = "site/config.yaml:20:7: templateSnippets.frontend-rule-served-by: no template includes the snippet"
    expected = [*write_mistakes(), snippet]

    log = await serve_until(*expected, SERVING)

    assert [log.count(text) for text in expected] == [1] * len(expected)


@pytest.mark.usefixtures("port")
async def test_failing_template_of_the_user_is_named_by_file_and_line() -> None:
    edit("config.yaml", ("X-Served-By haptic-trio", "X-Served-By {{ nothing.at.all }}"))

    log = await serve_until("invalid configuration ignored")

    assert "site/config.yaml:22: the test 'example-is-served' (The example" in log
    assert "fails: HAProxy accepts it: 'nothing' is not defined" in log
    assert SERVING not in log


async def test_taken_port_of_haproxy_is_one_error_with_setting_and_fix(port: int, holder: socket.socket) -> None:
    holder.listen()

    log = await serve_until("port unavailable: HAProxy cannot serve")

    assert f"ERROR port unavailable: HAProxy cannot serve address=127.0.0.1:{port}" in log
    assert "setting=templating.extraContext.httpPort" in log
    assert 'fix="stop the process that has the address, or change the setting; it is retried"' in log


async def test_taken_port_at_a_restart_is_logged_once(port: int, holder: socket.socket) -> None:
    holder.close()
    await serve_until(SERVING, "ready=1")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        log = await serve_until("port unavailable: HAProxy cannot serve", "haproxy did not start", "outcome=incomplete")

    assert log.count("haproxy did not start instance=local-1") == 1
    assert f"cannot bind 127.0.0.1:{port}: Address already in use" in log
    assert "haproxy exited" not in log
    assert "[ALERT]" not in log


@pytest.mark.usefixtures("port")
async def test_absent_address_names_the_setting() -> None:
    edit("config.yaml", ("bindAddress: 127.0.0.1", "bindAddress: 192.0.2.1"))

    log = await serve_until("port unavailable: HAProxy cannot serve address=192.0.2.1:")

    assert "set templating.extraContext.bindAddress to an address of this machine; it is retried" in log


@pytest.mark.usefixtures("port")
async def test_ports_and_state_directory_of_another_controller_are_named(holder: socket.socket) -> None:
    holder.close()
    async with serving(SERVING):
        same = await trio.run_process(command(), capture_stderr=True, check=False)
        # By the fleet or by the deployment, whichever comes first.
        async with serving("belongs to another controller: HAProxy ", state="other") as log:
            pass

    assert same.returncode == 2
    assert re.search(r"state belongs to another controller \(pid \d+\); stop it, or use another", same.stderr.decode())
    assert "belongs to another controller: HAProxy " in log
    assert "Choose other ports for this controller (`httpPort`, `httpsPort`" in log


@pytest.mark.usefixtures("port")
async def test_api_server_that_is_away_is_named_with_context_and_file() -> None:
    await trio.Path("kubeconfig").write_text(KUBECONFIG)
    place = "API server https://127.0.0.1:1 (context dev of kubeconfig): list the kinds of v1"

    await serve_until(
        f"{place}: all attempts to connect to 127.0.0.1:1 failed (is the API server running, and is the address in the"
        " credentials right?)",
        source=("--kubeconfig", "kubeconfig"),
    )
