"""Comparison of a running HAProxy with a new HAProxy that runs the output of `haptic-trio render`."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.dataplane.local.runtime import RuntimeClient
from tests.support.processes.ports import free_port

LIMIT: Final = 60.0
_MAINTENANCE: Final = 1
_FIELD: Final = re.compile(r"^(Serial|SHA1 FingerPrint): (.*)$", re.MULTILINE)
_ID: Final = re.compile(r"^0x[0-9a-f]+ ", re.MULTILINE)
_LINE: Final = re.compile(r":\d+$")

Facts = dict[str, object]


async def servers_of(socket: Path) -> dict[str, set[int]]:
    """Return the ports of the servers that may get requests, by backend."""
    found: dict[str, set[int]] = {}
    for row in await _server_rows(RuntimeClient(socket, endpoint=socket.parent.name)):
        if not int(row[6]) & _MAINTENANCE:
            found.setdefault(row[1], set()).add(int(row[18]))
    return found


async def facts_of(socket: Path) -> Facts:
    """Return servers, backends, maps, certificates and lists of certificates of a running HAProxy."""
    client = RuntimeClient(socket, endpoint=socket.parent.name)
    facts: Facts = {}
    rows = await _server_rows(client)
    facts["servers"] = sorted((row[1], row[4], row[18], row[7], int(row[6]) & _MAINTENANCE) for row in rows)
    stat = [line.split(",") for line in (await client.ask("show stat -1 7 -1\n")).splitlines() if line]
    facts["proxies"] = sorted({row[0] for row in stat if not row[0].startswith("#")})
    for kind in ("map", "acl"):
        for line in (await client.ask(f"show {kind}\n")).splitlines():
            number, _, rest = line.partition(" (")
            name = rest.partition(")")[0]
            # Lists without a file belong to the configuration, as the sections do.
            if number.isdecimal() and name:
                entries = (await client.ask(f"show {kind} #{number}\n")).splitlines()
                facts[f"{kind} {name}"] = sorted({_ID.sub("", entry) for entry in entries if entry})
    for name in _names(await client.ask("show ssl cert\n")):
        shown = await client.ask(f"show ssl cert {name}\n")
        facts[f"certificate {_relative(name)}"] = sorted(_FIELD.findall(shown))
    for name in _names(await client.ask("show ssl crt-list\n")):
        entries = (await client.ask(f"show ssl crt-list -n {name}\n")).splitlines()
        lines = [_LINE.sub("", entry.split(" ")[0]) + " " + " ".join(entry.split(" ")[1:]) for entry in entries]
        facts[f"crt-list {_relative(name)}"] = sorted(_relative(line) for line in lines if line.strip()[:1] != "#")
    return facts


def differences(running: Facts, fresh: Facts) -> list[str]:
    """Return what differs."""
    return [
        f"{name}: {running.get(name)!r}, fresh: {fresh.get(name)!r}"
        for name in sorted(running.keys() | fresh.keys())
        if running.get(name) != fresh.get(name)
    ]


@asynccontextmanager
async def fresh_haproxy(root: Path, source: Sequence[str], binary: Path, ports: Sequence[int]) -> AsyncIterator[Path]:
    """Render what *source* names below *root*, run it on other ports than *ports*, and yield its runtime socket."""
    command = [sys.executable, "-m", "haptic_trio", "render", *source, "--output-dir", str(root)]
    rendered = await trio.run_process(
        [*command, "--haproxy", str(binary)], capture_stdout=True, capture_stderr=True, check=False
    )
    assert rendered.returncode == 0, rendered.stderr.decode()
    config = root / "haproxy.cfg"
    text = config.read_text()
    for port in ports:
        text = re.sub(rf":{port}\b", f":{free_port()}", text)
    config.chmod(0o600)
    config.write_text(text)
    socket = root / "admin.sock"
    first = root / "first.cfg"
    first.write_text(f"global\n    default-path origin {root}\n    stats socket {socket} mode 600 level admin\n")
    log = root / "fresh.log"
    with log.open("wb") as output:
        run = [str(binary), "-db", "-f", str(first), "-f", str(config)]
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    run,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=clean_environment(),
                    check=False,
                )
            )
            with trio.fail_after(LIMIT):
                while not await _answers(socket):
                    assert process.returncode is None, log.read_text()
                    await trio.sleep(0.05)
            yield socket
            process.kill()


async def _answers(socket: Path) -> bool:
    try:
        await RuntimeClient(socket, endpoint="fresh").ask_pid()
    except EndpointError:
        return False
    return True


async def _server_rows(client: RuntimeClient) -> list[list[str]]:
    rows = (await client.ask("show servers state\n")).splitlines()
    return [row.split() for row in rows if " " in row and not row.startswith("#")]


def _names(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith(("#", "*"))]


def _relative(name: str) -> str:
    """Return a path below the folder of certificates: HAProxy names some files by their whole paths."""
    return name[name.rfind("ssl/") :] if "ssl/" in name else name
