"""The door: help, versions, and exit codes of what cannot be done."""

import json
import platform
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
import trio

from haptic_trio import __version__
from haptic_trio.cli.app import cli
from haptic_trio.cli.main import main
from tests.cli.commands import invoke_cli


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["haptic-trio", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_info:
        main()
    return int(exit_info.value.code or 0)


def test_help_lists_every_subcommand_and_the_exit_codes() -> None:
    result = invoke_cli("--help")

    assert result.exit_code == 0
    for word in ("demo", "render", "serve", "validate", "version", "Exit codes: 0"):
        assert word in result.output


@pytest.mark.parametrize("verb", ["demo", "render", "serve", "validate", "version"])
def test_every_subcommand_has_help(verb: str) -> None:
    result = invoke_cli(verb, "-h")

    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 5
    assert "--haproxy" in result.output


@pytest.mark.process
@pytest.mark.parametrize("verb", ["validate", "test", "serve", "diff"])
def test_unsupported_haproxy_is_rejected_by_every_verb_that_runs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, manifests: Path, verb: str
) -> None:
    old = tmp_path / "haproxy"
    old.write_text('#!/bin/sh\necho "HAProxy version 2.4.0 2021/05/14 - https://haproxy.org/"\n')
    old.chmod(0o755)
    given: dict[str, list[str | Path]] = {
        "serve": ["--state-dir", tmp_path / "state", "--listen", "127.0.0.1:0"],
        "diff": ["--to", manifests],
    }
    arguments = [verb, "--manifests", manifests, *given.get(verb, [])]

    assert run_main(monkeypatch, *arguments, "--haproxy", old) == 2

    error = capsys.readouterr().err
    assert f"error: {old}: HAProxy 2.4.0 is not supported; the oldest supported version is 2.8." in error
    assert "is not supported" in invoke_cli("version", "--haproxy", old).stderr


@pytest.mark.parametrize("arguments", [["rendr"], ["render"], ["render", "--manifests", "/nowhere"], ["serve", "-x"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    assert invoke_cli(*arguments).exit_code == 2


@pytest.mark.process
def test_manifests_may_be_named_by_the_environment(manifests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAPTIC_MANIFESTS", str(manifests))

    assert invoke_cli("render").exit_code == 0


def test_a_missing_haproxy_is_an_error_and_no_problem_of_the_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], manifests: Path
) -> None:
    assert run_main(monkeypatch, "validate", "--manifests", manifests, "--haproxy", "/nowhere/haproxy") == 2
    assert "/nowhere/haproxy" in capsys.readouterr().err


@pytest.mark.haproxy
def test_version_shows_what_would_run(haproxy_binary: Path) -> None:
    output = invoke_cli("version", "--haproxy", haproxy_binary).output

    assert __version__ in output
    assert platform.python_version() in output
    assert str(haproxy_binary) in output


@pytest.mark.process
def test_the_package_can_be_run_as_a_module() -> None:
    run = subprocess.run([sys.executable, "-m", "haptic_trio", "--version"], capture_output=True, text=True, check=True)

    assert __version__ in run.stdout


def test_every_subcommand_has_its_module_and_its_summary() -> None:
    context = click.Context(cli)
    verbs = [cli.get_command(context, name) for name in cli.list_commands(context)]

    assert [verb.name for verb in verbs if verb is not None] == cli.list_commands(context)


def test_a_misspelt_subcommand_gets_a_suggestion() -> None:
    result = invoke_cli("rendr")

    assert (result.exit_code, "Did you mean 'render'?" in result.stderr) == (2, True)


@pytest.mark.process
@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("watchfiles", ["serve", "--help"]),
        ("kr8s", ["render", "--kubeconfig=config"]),
        ("kr8s", ["validate", "--kubeconfig=config", "--output=json"]),
    ],
)
def test_a_missing_package_is_named(tmp_path: Path, package: str, arguments: list[str]) -> None:
    (tmp_path / "config").write_text("{}")
    script = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['haptic-trio', *{arguments}]\n"
        "from haptic_trio.cli.main import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run.returncode == 2
    assert f"the Python package {package} is not installed" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.process
def test_small_subcommands_start_without_the_controller() -> None:
    script = (
        "import sys; from haptic_trio.cli.main import main; sys.argv = ['haptic-trio', 'new', '--help']\n"
        "try: main()\n"
        "finally: print(sorted({name for name in sys.modules if name.startswith(('trio.', 'httpx.', 'jinja2.'))}))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout.endswith("[]\n")


@pytest.mark.process
@pytest.mark.parametrize("module", ["click", "haptic_trio.cli.render"])
@pytest.mark.parametrize(("output", "reported"), [("text", "error: interrupted"), ("json", '"message": "interrupted"')])
def test_ctrl_c_during_the_start_is_reported_as_interrupted(module: str, output: str, reported: str) -> None:
    script = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from haptic_trio.cli.main import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "render", "--output", output]
    run = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (run.returncode, run.stdout, "Traceback" in run.stderr, reported in run.stderr) == (130, "", False, True)


@pytest.mark.process
@pytest.mark.parametrize("output", ["text", "json"])
async def test_ctrl_c_is_reported_as_interrupted_and_not_as_a_problem(tmp_path: Path, output: str) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    kubeconfig = tmp_path / "kubeconfig"
    server = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
    kubeconfig.write_text(
        json.dumps(
            {
                "clusters": [{"name": "slow", "cluster": {"server": server}}],
                "contexts": [{"name": "slow", "context": {"cluster": "slow", "user": "me"}}],
                "users": [{"name": "me", "user": {}}],
                "current-context": "slow",
            }
        )
    )
    command = [sys.executable, "-m", "haptic_trio", "render", "--kubeconfig", str(kubeconfig), "--output", output]
    async with listener:
        process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE)
        assert process.stderr is not None
        try:
            with trio.fail_after(60):
                # It asks, and waits for an answer that does not come.
                async with await listener.accept(), process.stderr:
                    process.send_signal(signal.SIGINT)
                    said = b"".join([chunk async for chunk in process.stderr]).decode()
                code = await process.wait()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    assert code == 130
    expected = "error: interrupted" if output == "text" else '{"errors":[{"message":"interrupted"}]}'
    assert "".join(said.split()) == "".join(expected.split())
