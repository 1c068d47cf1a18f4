"""A recorded session in a terminal as an animated picture: `python -m tools.site.recording FILE.svg`.

The commands run as they are shown, in a new directory, with the ports and programs of this machine; the picture shows
what they write, with its colours, and when. Pauses are shortened, and the typing of commands is added.
"""

import fcntl
import html
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

COLUMNS: Final = 100
ROWS: Final = 26
COMMANDS: Final = (
    "haptic-trio new site",
    "python3 -m http.server 8000 --bind 127.0.0.1 >web.log 2>&1 &",
    "haptic-trio serve --manifests site --on-exit stop 2>serve.log &",
    "until grep -o 'Serving .* instance' serve.log; do sleep 0.1; done",
    "curl -so /dev/null -w '%{http_code}\\n' -H 'Host: example.localhost' http://127.0.0.1:8080/",
    "sed -i s/example.localhost/shop.localhost/ site/example.yaml; sleep 0.5",
    "curl -so /dev/null -w '%{http_code}\\n' -H 'Host: shop.localhost' http://127.0.0.1:8080/",
    "grep -o 'instance updated without reload' serve.log | tail -1",
    "haptic-trio explain --manifests site shop.localhost/",
    "sed -i s/templating:/templatin:/ site/config.yaml; haptic-trio validate --manifests site",
)
LIMIT: Final = 60.0
"""Seconds for one command."""
_TYPING: Final = 0.03
"""Seconds for each character of a command."""
_AFTER_COMMAND: Final = 1.2
_LONGEST_PAUSE: Final = 1.0
_SGR: Final = re.compile(r"\x1b\[([\d;]*)m")
_OTHER: Final = re.compile(r"\x1b(?:\[[\d;?]*[A-Za-ln-z]|\].*?(?:\x07|\x1b\\))|\r")
_COLOURS: Final = ("#6c7086", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#f5c2e7", "#94e2d5", "#cdd6f4")
_WIDTH, _HEIGHT, _MARGIN = 8.4, 19.0, 14.0


class Line(msgspec.Struct, frozen=True):
    """A line of the terminal: when it appears, in seconds, and its text with the codes of its colours."""

    at: float
    text: str


def record(commands: Sequence[str], folder: Path) -> list[Line]:
    """Run *commands* one after another in one shell in *folder*; return their lines, and those of the commands."""
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    shell = subprocess.Popen(
        ["bash", "--noprofile", "--norc"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    lines: list[Line] = []
    clock = 0.5
    try:
        assert shell.stdin is not None
        for number, command in enumerate(commands):
            lines.append(Line(clock, f"\x1b[32m$\x1b[0m {command}"))
            clock += _TYPING * len(command) + 0.2
            # A line of its own ends the output of each command; it is not recorded.
            shell.stdin.write(f"{command}\nprintf '\\0%s\\n' {number}\n".encode())
            shell.stdin.flush()
            clock = _output(main, f"\0{number}", clock, lines) + _AFTER_COMMAND
    finally:
        _end(shell)
        os.close(main)
    return lines


def _end(shell: subprocess.Popen[bytes]) -> None:
    """End the shell and what it started: these ignore SIGINT, since they run in the background."""
    if shell.stdin is not None:
        shell.stdin.close()
    shell.kill()
    shell.wait()
    deadline = time.monotonic() + 10
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(shell.pid, number)
            while time.monotonic() < deadline:
                os.killpg(shell.pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            return


def _output(terminal: int, end: str, clock: float, lines: list[Line]) -> float:
    """Read the output of one command until *end*; return the time in the picture."""
    text, last, deadline = "", time.monotonic(), time.monotonic() + LIMIT
    while True:
        if not select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"a command takes longer than {LIMIT:.0f} s; it wrote {text!r}")
        text += os.read(terminal, 65536).decode(errors="replace")
        clock += min(time.monotonic() - last, _LONGEST_PAUSE)
        last = time.monotonic()
        while "\n" in text:
            line, _, text = text.partition("\n")
            if line.rstrip("\r") == end:
                return clock
            lines.append(Line(clock, line.rstrip("\r")))


def draw(lines: Sequence[Line]) -> str:
    """Return the animated picture of *lines*, as SVG: it plays once, and stays still for readers who prefer that."""
    wrapped = [Line(line.at, part) for line in lines for part in _wrapped(line.text)]
    end = wrapped[-1].at + 0.1
    # Of rows that appear at once, the last one counts; the end needs a step of its own, or the first rows come back.
    scrolled = {f"{line.at / end:.2%}": number - ROWS + 1 for number, line in enumerate(wrapped) if number >= ROWS}
    scrolled["to"] = max(0, len(wrapped) - ROWS)
    steps = "".join(f"{at}{{transform:translateY({-rows * _HEIGHT:.1f}px)}}" for at, rows in scrolled.items())
    rows = "\n".join(
        f'<text y="{(number + 1) * _HEIGHT:.1f}" style="animation-delay:{line.at:.2f}s">{_spans(line.text)}</text>'
        for number, line in enumerate(wrapped)
    )
    width, height = COLUMNS * _WIDTH + 2 * _MARGIN, ROWS * _HEIGHT + 2 * _MARGIN
    colours = "".join(f".c{number}{{fill:{colour}}}" for number, colour in enumerate(_COLOURS))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">
<title>A session of haptic-trio in a terminal</title>
<style>
text{{font:14px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#cdd6f4;white-space:pre;opacity:0;\
animation:show 1ms forwards}}
.b{{font-weight:bold}}{colours}
#screen{{animation:scroll {end:.2f}s step-end forwards}}
@keyframes show{{to{{opacity:1}}}}
@keyframes scroll{{{steps}}}
@media (prefers-reduced-motion){{text{{animation-delay:0s!important}}#screen{{animation-duration:1ms}}}}
</style>
<rect width="100%" height="100%" rx="8" fill="#1e1e2e"/>
<svg x="{_MARGIN:.0f}" y="{_MARGIN - 4:.0f}" width="{width - 2 * _MARGIN:.0f}" height="{height - 2 * _MARGIN + 6:.0f}">
<g id="screen">
{rows}
</g></svg></svg>
"""


def _wrapped(text: str) -> list[str]:
    """Return the rows that a terminal makes of a line; colours go on in the next row."""
    rows, row, column, colour = list[str](), "", 0, ""
    for part in re.split(r"(\x1b\[[\d;]*m)", _OTHER.sub("", text)):
        if part.startswith("\x1b"):
            row, colour = row + part, part
            continue
        for character in part:
            if column == COLUMNS:
                rows.append(row)
                row, column = colour, 0
            row, column = row + character, column + 1
    return [*rows, row]


def _spans(text: str) -> str:
    found, classes, end = "", set[str](), 0
    for code in (*_SGR.finditer(text), None):
        part = html.escape(text[end : code.start() if code else None], quote=False)
        names = " ".join(sorted(classes))
        found += f'<tspan class="{names}">{part}</tspan>' if part and names else part
        if code is not None:
            classes, end = _after(classes, code[1]), code.end()
    return found


def _after(classes: set[str], codes: str) -> set[str]:
    """Return the classes of what follows the *codes* of an escape sequence."""
    now = set(classes)
    for code in map(int, (codes or "0").split(";")):
        if code == 0:
            now = set()
        elif code == 1:
            now.add("b")
        elif code == 2:
            now = {name for name in now if name == "b"} | {"c0"}
        elif code in (39, *range(30, 38), *range(90, 98)):
            now = {name for name in now if name == "b"} | ({f"c{code % 10}"} if code != 39 else set())
    return now


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="haptic-recording-") as directory:
        Path(sys.argv[1]).write_text(draw(record(COMMANDS, Path(directory))), "utf-8")
