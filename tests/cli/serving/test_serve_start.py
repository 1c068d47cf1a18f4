"""If `serve` cannot start, it names the reason, and leaves the files of another controller untouched."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest
import structlog
import trio
from click.testing import CliRunner

from haptic_trio.cli import serve
from haptic_trio.cli.app import cli
from haptic_trio.cli.inputs.options import make_input
from haptic_trio.cli.serve import ServeOptions, run_serve
from haptic_trio.dataplane.binary import HaproxyNotFoundError
from haptic_trio.dataplane.local.directory_lock import InstanceLockedError, lock_directory
from tests.features.conftest import haproxy_binary
from tests.support.processes.read_only import read_only

__all__ = ["haproxy_binary", "read_only"]

pytestmark = pytest.mark.haproxy


@pytest.fixture
def options(tmp_path: Path, haproxy_binary: Path) -> ServeOptions:
    """Options over an empty directory."""
    (tmp_path / "manifests").mkdir()
    return ServeOptions(
        input=make_input(tmp_path / "manifests", "default", "haptic-trio", "haptic-trio", str(haproxy_binary)),
        state_dir=tmp_path / "state",
        listen="127.0.0.1:0",
    )


async def test_state_directory_of_another_controller_is_left_untouched(options: ServeOptions) -> None:
    async with lock_directory(options.state_dir):
        key = options.state_dir / "scratch" / "key"
        key.parent.mkdir()
        key.write_text("in use")
        with pytest.raises(
            InstanceLockedError,
            match=r"belongs to another controller \(pid [0-9]+\); stop it, or use another directory: --state-dir",
        ):
            await run_serve(options)
        assert key.read_text() == "in use"


async def test_read_only_state_directory_is_reported_and_prevents_no_start(
    options: ServeOptions, read_only: Callable[[Path], AbstractContextManager[None]]
) -> None:
    async def start() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(run_serve, options)
                nursery.cancel_scope.cancel(reason="it has started")

    await start()
    with read_only(options.state_dir), structlog.testing.capture_logs() as logs:
        await start()
    found = {entry["event"] for entry in logs}
    assert "cannot write the address of the console" in found
    assert "cannot create the control socket: restart the controller to use `haptic-trio fleet`" in found


async def test_taken_port_is_named_and_ends_it(options: ServeOptions) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        command = [sys.executable, "-m", "haptic_trio", "serve", "--listen", address]
        command += ["--manifests", str(options.input.manifests), "--state-dir", str(options.state_dir)]
        with trio.fail_after(20):
            ended = await trio.run_process(command, capture_stderr=True, check=False)
    assert (ended.returncode, ended.stderr.decode()) == (
        2,
        f"error: cannot listen on {address}: Address already in use; select another port with --listen\n",
    )


async def test_program_that_is_not_a_haproxy_is_rejected(options: ServeOptions) -> None:
    wrong = msgspec.structs.replace(options.input, haproxy="/bin/true")
    with pytest.raises(HaproxyNotFoundError, match="/bin/true is not HAProxy"):
        await run_serve(msgspec.structs.replace(options, input=wrong))


async def test_signal_ends_a_start_that_hangs(options: ServeOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = trio.Event()

    async def hang(_options: ServeOptions, **_others: object) -> None:
        begun.set()
        await trio.sleep_forever()

    monkeypatch.setattr(serve, "run_serve", hang)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve.serve_until_signalled, options)
            await begun.wait()
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("listen", ["", "9090", ":9090", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "::1:9090"])
def test_address_without_host_or_port_is_a_usage_error(tmp_path: Path, listen: str) -> None:
    result = CliRunner().invoke(cli, ["serve", "--manifests", str(tmp_path), "--listen", listen])
    assert result.exit_code == 2
    assert "--listen" in result.output
