"""`debug` shows the state of a controller in a terminal of 80 columns."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from rich.console import Console, RenderableType

from haptic_trio.cli.app import cli
from haptic_trio.cli.console_client import NoConsoleError
from haptic_trio.cli.output.debug import event_line, live_view, task_tree
from haptic_trio.cli.serving.console import (
    SHORTEST_TOKEN,
    TOKEN_NAME,
    TokenError,
    read_given_token,
    read_token,
    wants_console,
)

EVENT = {
    "number": 1,
    "at": 100.0,
    "kind": "InstanceDeployed",
    "correlation": "1-1",
    "level": "info",
    "text": "instance reloaded",
    "fields": {"correlation": "1-1", "reasons": ["backend a added " * 20], "said": "\x1b[31mred"},
}
STATE: dict[str, Any] = {
    "iteration": {"number": 3, "stage": 5, "is_ready": True},
    "stages": [{"stage": 5, "name": "reconcile", "seconds": 0.2}],
    "is_leader": True,
    "quarantined": 0,
    "fragments_rendered": 10,
    "fragments_reused": 9000,
    "instances": [{"name": f"local-{number}", "operations": 2} for number in range(30)],
    "cycles": [{"correlation": f"3-{number}", "render": 0.01, "outcome": "deployed"} for number in range(60)],
}
NOW = {"clock": 100.0, "unix": 1_700_000_000.0}


def shown(renderable: RenderableType) -> list[str]:
    """Return the lines that a terminal of 80 columns shows."""
    terminal = Console(file=io.StringIO(), width=80, force_terminal=False)
    terminal.print(renderable)
    assert isinstance(terminal.file, io.StringIO)
    return terminal.file.getvalue().splitlines()


def test_live_view_fits_80_columns_and_24_lines() -> None:
    lines = shown(live_view({"state": STATE, "channels": []}, [EVENT] * 50, NOW, 24))

    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "iteration 3" in lines[0]
    assert "instance reloaded" in lines[-1]


def test_live_view_shows_the_first_problems_and_the_number_of_others() -> None:
    quarantined = {"object": "Ingress default/a", "reason": "Quarantined", "problem": "bad\x1b", "serving": "nothing"}
    warning = {"object": "Ingress default/b", "reason": "PortNotFound", "problem": "no port " * 30, "serving": ""}
    objects = {"quarantined": 1, "warnings": 5000, "listed": [quarantined] + [warning] * 50, "more": 4950}

    lines = shown(live_view({"state": STATE | {"objects": objects}, "channels": []}, [EVENT] * 50, NOW, 24))

    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    first = lines.index("PROBLEMS") + 1
    assert lines[first] == "Ingress default/a: Quarantined: bad\\x1b (serving: nothing)"
    assert lines[first + 3] == "… and 4998 more"


def test_live_view_between_two_iterations() -> None:
    state = STATE | {"iteration": None}

    assert shown(live_view({"state": state}, [], NOW, 24))[0] == "between two iterations"


def test_words_of_others_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in event_line(EVENT, NOW["unix"], NOW["clock"]).plain


def test_tasks_show_how_long_a_scope_has_left() -> None:
    child = {"name": "child", "place": "stages.iteration:3 run", "waits_for": "Event.wait"}
    root = {"name": "root", "nurseries": [{"scope": {"deadline": 102.5, "shield": True}, "tasks": [child]}]}

    text = "\n".join(shown(task_tree(root, 100.0)))

    assert "2.5 s left, shielded" in text
    assert "stages.iteration:3" in text


@pytest.mark.parametrize(
    ("choice", "listen", "expected"),
    [
        ("auto", "127.0.0.1:9090", True),
        ("auto", "[::1]:9090", True),
        ("auto", "localhost:0", True),
        ("auto", "0.0.0.0:9090", False),
        ("auto", "[::]:9090", False),
        ("auto", "admin.example:9090", False),
        ("on", "0.0.0.0:9090", True),
        ("off", "127.0.0.1:9090", False),
    ],
)
def test_console_is_off_beyond_loopback_unless_asked_for(choice: str, listen: str, expected: bool) -> None:
    assert wants_console(choice, listen) is expected


def test_token_is_made_once_and_a_short_one_rejected(tmp_path: Path) -> None:
    token = read_token(tmp_path)

    assert len(token) >= SHORTEST_TOKEN
    assert read_token(tmp_path) == token
    assert (tmp_path / TOKEN_NAME).stat().st_mode & 0o777 == 0o600
    (tmp_path / TOKEN_NAME).write_text("short\n")
    with pytest.raises(TokenError, match="less than"):
        read_token(tmp_path)
    (tmp_path / TOKEN_NAME).write_bytes(b"\xff" * SHORTEST_TOKEN)
    with pytest.raises(TokenError, match="not UTF-8; delete the file"):
        read_token(tmp_path)


def test_an_empty_file_a_fifo_or_a_link_is_replaced_by_a_token(tmp_path: Path) -> None:
    path = tmp_path / TOKEN_NAME
    # As a full disk left it.
    path.touch()
    assert len(read_token(tmp_path)) >= SHORTEST_TOKEN
    path.unlink()
    os.mkfifo(path)
    assert read_token(tmp_path) == path.read_text().strip()
    path.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("another user knows this token\n")
    path.symlink_to(elsewhere)
    assert read_token(tmp_path) == path.read_text().strip() != elsewhere.read_text().strip()
    path.unlink()
    path.mkdir()
    with pytest.raises(TokenError, match=r"cannot be written: .*Is a directory"):
        read_token(tmp_path)


def test_a_token_that_cannot_be_written_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(TokenError, match="No space left"):
        read_token(tmp_path)
    monkeypatch.undo()

    assert len(read_token(tmp_path)) >= SHORTEST_TOKEN


def test_given_token_is_read_and_none_is_created_in_its_place(tmp_path: Path) -> None:
    given = tmp_path / "token"
    with pytest.raises(TokenError, match="cannot be read"):
        read_given_token(given)
    assert not given.exists()

    given.write_text("t" * SHORTEST_TOKEN + "\n")
    assert read_given_token(given) == "t" * SHORTEST_TOKEN
    given.write_text("short\n")
    with pytest.raises(TokenError, match="less than 16 characters; provide a longer token"):
        read_given_token(given)
    given.write_bytes(b"\xff" * SHORTEST_TOKEN)
    with pytest.raises(TokenError, match="cannot be read"):
        read_given_token(given)


def test_without_a_controller_the_error_names_the_options(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["debug", "tasks", "--state-dir", str(tmp_path)])

    assert isinstance(result.exception, NoConsoleError)
    assert "--state-dir" in str(result.exception)


@pytest.mark.process
async def test_a_reader_that_goes_away_ends_it_though_there_is_nothing_to_write(tmp_path: Path) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
    (tmp_path / TOKEN_NAME).write_text("t" * SHORTEST_TOKEN)
    command = [sys.executable, "-m", "haptic_trio", "debug", "events", "--follow", "--url", url]
    async with listener:
        process = await trio.lowlevel.open_process(
            [*command, "--token-file", str(tmp_path / TOKEN_NAME)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            with trio.fail_after(60):
                # The console never says anything.
                async with await listener.accept(), process.stderr:
                    await process.stdout.aclose()
                    said = b"".join([chunk async for chunk in process.stderr])
                code = await process.wait()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    assert (code, said) == (0, b"")
