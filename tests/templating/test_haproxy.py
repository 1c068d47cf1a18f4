"""A real HAProxy reads back exactly the values that went into the emitters."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from haptic_trio.templating.engine import Engine
from tests.support.processes.haproxy import haproxy_binary
from tests.support.processes.ports import free_port

__all__ = ["haproxy_binary"]

VALUES = [
    "plain", "it's", "a b", "%[env(HOME)]", "${HOME} $HOME", '"q"', "back\\slash \\n \\x41", "#c", "%%", "%{+Q}o %ci",
    "é ü 漢", "a;b|c&d", "{x} (y) [z]", "'", "''", "\\'", "'\\''", "\\", "~", "<>!", "if", "%", "*", "a" * 3000,
    "-f", "-i", "-m", "-n", "-u", "-M", "--", "-",
    "{", "||", "^$.*+?", "a,b", "'%[src]'",
]  # fmt: skip

CONFIG = """\
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s

frontend f
    bind 127.0.0.1:{{ port | port }}
{% for v in values %}
{% set i = loop.index0 %}
{% set whole = "^" ~ (v | regex_escape) ~ "$" %}
    http-request set-var(txn.s{{ i }}) str(yes) if { req.fhdr(x-{{ i }}) -m str {{ v | pattern }} }
    http-request set-var(txn.r{{ i }}) str(yes) if { req.fhdr(x-{{ i }}) -m reg {{ whole | pattern }} }
    http-request set-var(txn.q{{ i }}) str(yes) if { req.fhdr(x-{{ i }}) -m reg -- {{ v | regex }} }
    http-after-response set-header x-s{{ i }} %[var(txn.s{{ i }})]
    http-after-response set-header x-r{{ i }} %[var(txn.r{{ i }})]
    http-after-response set-header x-q{{ i }} %[var(txn.q{{ i }})]
    http-after-response set-header x-l{{ i }} {{ v | logformat }}
{% endfor %}
    http-request set-var(txn.mapped) req.hdr(x-key),map_str({{ map }},none)
    http-after-response set-header x-mapped %[var(txn.mapped)]
    http-request return status 200
"""


@contextmanager
def running(binary: Path, config: Path, port: int) -> Iterator[None]:
    """Run HAProxy with *config* until the block ends."""
    checked = subprocess.run([binary, "-c", "-f", config], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    process = subprocess.Popen([binary, "-f", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_listening(port)
        yield
    finally:
        process.terminate()
        process.wait(10)


def ask(port: int, headers: dict[str, str]) -> dict[str, str]:
    """Send one request with *headers*; return the answer's."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.sendall(f"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{head}\r\n".encode())
        answer = b"".join(iter(lambda: stream.recv(65_536), b"")).decode()
    lines = answer.partition("\r\n\r\n")[0].split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines)


def _wait_until_listening(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return


@pytest.mark.haproxy
def test_haproxy_reads_back_what_the_emitters_wrote(haproxy_binary: Path, tmp_path: Path) -> None:
    port = free_port()
    entries = {f"key{number}": value for number, value in enumerate(VALUES)}
    engine = Engine(
        {
            "cfg": CONFIG,
            "map": "{% for k, v in entries.items() %}{{ k | map_key }} {{ v | map_value }}\n{% endfor %}",
        }
    )
    map_file, config = tmp_path / "a.map", tmp_path / "haproxy.cfg"
    run = engine.start_run()
    map_file.write_text(engine.render("map", {"entries": entries}, run).text)
    context = {"values": VALUES, "port": port, "map": str(map_file)}
    config.write_text(engine.render("cfg", context, run).text)
    with running(haproxy_binary, config, port):
        got = ask(port, {f"x-{number}": value for number, value in enumerate(VALUES)})
        for number, value in enumerate(VALUES):
            assert got.get(f"x-l{number}") == value
            assert got.get(f"x-s{number}") == "yes", value
            assert got.get(f"x-r{number}") == "yes", value
            assert got.get(f"x-q{number}") == "yes", value
        for key, value in entries.items():
            assert ask(port, {"x-key": key})["x-mapped"] == value


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "line", ["http-request set-header X ''", "http-request deny if { path '}' }", "http-request deny if { path '' }"]
)
def test_what_word_rejects_breaks_haproxy(haproxy_binary: Path, tmp_path: Path, line: str) -> None:
    config = tmp_path / "haproxy.cfg"
    config.write_text(f"frontend f\n    mode http\n    timeout client 1s\n    bind 127.0.0.1:1\n    {line}\n")
    checked = subprocess.run([haproxy_binary, "-c", "-f", config], capture_output=True, check=False)
    assert checked.returncode == 1
