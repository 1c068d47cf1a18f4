"""Runs the console blocks of a page as they stand, and compares what comes out with what the page shows.

In a page, `$ ` begins a command, which goes on behind a backslash at the end
of a line; what follows is its output. `…` in a line of output stands for any
text, and alone in a line for any lines, also none. A word behind `console`
names a terminal of its own: its command is left running when the output that
is shown has come, further blocks of that terminal show what comes next, and
`^C` ends it. `diff FILE` is a change to be made by hand, and any other
language with a FILE is the content of one, or with +FILE more of it.

Ports are those of the page. Where they are taken, others are used, in
commands, files and output alike.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.docs.markdown import ROOT, Block

BY_HAND: Final = "by hand"
"""In place of a terminal: the block is for readers alone."""
MORE: Final = "+"
"""Before the name of a file: the block stands at its end."""
_PORTS: Final = re.compile(r"(?<![\w.])(8080|8443|9090|8000|18081|18082|18083)(?![\w.])")
_ANY: Final = "…"
_LIMIT: Final = 60.0
_LOOK: Final = 0.02


class MismatchError(AssertionError):
    """A page and the program do not say the same."""


class Session:
    """A person with some terminals who goes through a page."""

    def __init__(self, directory: Path) -> None:
        """Work in *directory*, which stands for the checkout."""
        self._directory = directory
        self._ports: dict[str, str] = {}
        self._terminals: dict[str, _Running] = {}
        directory.joinpath(".venv").symlink_to(sys.prefix, target_is_directory=True)
        # The recipe without what makes the environment: that is there.
        recipe = re.sub(
            r"(?m)^([a-z-]+:) \$\((STAMP\)|if .*\)\)(?=  ##))", r"\1", (ROOT / "Makefile").read_text("utf-8")
        )
        (directory / "Makefile").write_text(recipe, "utf-8")
        self._environment = {
            "PATH": f"{directory / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(directory),
            "XDG_STATE_HOME": str(directory / "state"),
            "PYTHONUNBUFFERED": "1",
            "LC_ALL": "C.UTF-8",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for running in self._terminals.values():
            running.end()
            running.close()
        self._terminals.clear()

    def follow(self, blocks: Sequence[Block]) -> None:
        """Do what *blocks* say, in order; raises `MismatchError` for the first one that does not hold."""
        for block in blocks:
            try:
                self._do(block)
            except MismatchError as exc:
                reported = "".join(f"\n[{name}]\n{running.read()}" for name, running in self._terminals.items())
                raise MismatchError(f"{block.place}: {exc}{reported}") from None

    def _do(self, block: Block) -> None:
        if block.argument == BY_HAND:
            return
        if block.language == "console":
            for command, expected in steps_of(block.text):
                self._step(command, expected, block.argument)
        elif block.language == "diff" and block.argument:
            path = self._directory / block.argument
            path.write_text(apply_diff(path.read_text("utf-8"), self._translate(block.text)), "utf-8")
        elif block.argument:
            path = self._directory / block.argument.removeprefix(MORE)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a" if block.argument.startswith(MORE) else "w", encoding="utf-8") as file:
                file.write(self._translate(block.text))

    def _step(self, command: str, expected: list[str], terminal: str) -> None:
        if not terminal:
            self._match(self._run(command), expected)
            return
        if command:
            self._terminals[terminal] = _Running(
                self._translate(command), self._directory, self._environment | self._addresses()
            )
        running = self._terminals.get(terminal)
        if running is None:
            raise MismatchError(f"nothing runs in the terminal {terminal!r}")
        if expected[:1] == ["^C"]:
            running.interrupt()
            self._match(running.unread(), [_ANY, *expected[1:]])
            running.close()
            del self._terminals[terminal]
            # Whatever comes next may get the usual ports.
            self._ports.clear()
            return
        deadline = time.monotonic() + _LIMIT
        while True:
            ended, text = running.has_ended(), running.unread()
            try:
                running.taken += self._match(text, [*expected, _ANY])
            except MismatchError:
                if ended or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK)
            else:
                return

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self._translate(command)],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        for path in self._directory.glob("*/*.yaml"):
            # What the program has written for this person.
            path.write_text(self._translate(path.read_text("utf-8")), "utf-8")
        # A terminal does not show whether the last line has an end.
        return done.stdout if done.stdout[-1:] in ("", "\n") else f"{done.stdout}\n"

    def _addresses(self) -> dict[str, str]:
        return {"HAPTIC_LISTEN": self._translate("127.0.0.1:9090")}

    def _translate(self, text: str) -> str:
        return _PORTS.sub(lambda found: self._ports.setdefault(found[0], _free_port(found[0])), text)

    def _match(self, text: str, expected: list[str]) -> int:
        """Return how much of *text* is what the page shows; the rest may come after a final `…`."""
        learnt: set[str] = set()
        pattern = "".join(self._pattern(line.rstrip(), learnt) for line in expected)
        found = re.match(rf"(?s){pattern}" if expected[-1:] == [_ANY] else rf"(?s){pattern}\Z", text)
        if found is None:
            shown = "\n".join(expected)
            raise MismatchError(f"the page shows\n{self._shown(shown)}\n--- but there is\n{text}")
        self._ports |= {name.removeprefix("p"): value for name, value in found.groupdict().items()}
        return found.end()

    def _pattern(self, line: str, learnt: set[str]) -> str:
        if line == _ANY:
            return r"(?:[^\n]*\n)*?"
        pattern, end = "", 0
        for port in _PORTS.finditer(line):
            pattern += _words(line[end : port.start()])
            if port[0] in self._ports:
                pattern += self._ports[port[0]]
            else:
                # The program chose it; from now on it is known.
                pattern += f"(?P=p{port[0]})" if port[0] in learnt else rf"(?P<p{port[0]}>\d+)"
                learnt.add(port[0])
            end = port.end()
        return f"{pattern}{_words(line[end:])} *\n"

    def _shown(self, text: str) -> str:
        return _PORTS.sub(lambda found: self._ports.get(found[0], found[0]), text)


class _Running:
    """A command that goes on in a terminal of its own."""

    def __init__(self, command: str, directory: Path, environment: dict[str, str]) -> None:
        descriptor = os.memfd_create("terminal")
        self._descriptor = descriptor
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.taken = 0
        """Characters that were compared already."""

    def read(self) -> str:
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size, 0).decode(errors="replace")

    def unread(self) -> str:
        return self.read()[self.taken :]

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def interrupt(self) -> None:
        """Do what Ctrl-C does: send SIGINT to all processes of the terminal; returns when the command has ended."""
        try:
            os.killpg(self._process.pid, signal.SIGINT)
            self._process.wait(20)
        finally:
            self.end()

    def end(self) -> None:
        """End it, whatever state it is in."""
        if not self.has_ended():
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def close(self) -> None:
        """Forget the output so far."""
        os.close(self._descriptor)


def compare(text: str, expected: Sequence[str]) -> None:
    """Raise `MismatchError` unless *text* is what a page shows as *expected*; without ports to be learnt."""
    pattern = "".join(r"(?:[^\n]*\n)*?" if line == _ANY else rf"{_words(line.rstrip())} *\n" for line in expected)
    if re.fullmatch(pattern, text) is None:
        shown = "\n".join(expected)
        raise MismatchError(f"the page shows\n{shown}\n--- but there is\n{text}")


def steps_of(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a block with the output of each; output before the first one has an empty command."""
    steps: list[tuple[str, list[str]]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = f"{command[:-1].rstrip()} {next(lines).strip()}"
            steps.append((command, []))
        else:
            if not steps:
                steps.append(("", []))
            steps[-1][1].append(line)
    return steps


def apply_diff(text: str, change: str) -> str:
    """Return *text* with what `-` lines are replaced by `+` lines, at the one place where the others stand."""
    lines = [line for line in change.splitlines() if not line.startswith(("---", "+++", "@@"))]
    old = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
    new = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
    if text.count(old) != 1:
        raise MismatchError(f"these lines are {text.count(old)} times in the file:\n{old}\n--- which is\n{text}")
    return text.replace(old, new)


def _words(text: str) -> str:
    return r"[^\n]*?".join(map(re.escape, text.split(_ANY)))


def _free_port(wanted: str) -> str:
    for number in (int(wanted), 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                continue
            return str(probe.getsockname()[1])
    raise AssertionError("there is no free port")


def require_tools() -> None:
    """Raise AssertionError where a program that readers need is absent."""
    absent = [name for name in ("bash", "curl", "make", "openssl") if shutil.which(name) is None]
    assert not absent, f"not installed: {', '.join(absent)}"
