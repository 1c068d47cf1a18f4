"""`haptic-trio debug` in a real terminal of 80 columns and 24 lines, over a running controller.

Questions of operators are answered in at most three actions from the first screen.
"""

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from haptic_trio.cli.terminal.app import KEYS
from tests.features.console.test_stories import write_failing_objects
from tests.features.harness import Running, Site, ingress, service, serving_web
from tests.support.processes.tmux import Terminal, open_terminal

pytestmark = [pytest.mark.haproxy, pytest.mark.process]

Story: TypeAlias = Callable[["Operator"], Awaitable[None]]


def command(site: Site) -> list[str]:
    """Return the command that shows the UI for the controller of *site*."""
    return [sys.executable, "-m", "haptic_trio", "debug", "--state-dir", str(site.state)]


@asynccontextmanager
async def looking(site: Site, haproxy: Path, tmux: Path, **variables: str) -> AsyncIterator[tuple[Running, Terminal]]:
    """Run the controller, and a terminal that shows its console."""
    async with (
        serving_web(site, haproxy) as running,
        open_terminal(tmux, command(site), variables=variables) as terminal,
    ):
        await terminal.shows("Ready, leader, 1 instance")
        yield running, terminal


class Operator:
    """A user of the terminal whose actions are counted: keys, and texts that are entered."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.actions = 0

    async def press(self, key: str) -> None:
        """Press *key*."""
        self.actions += 1
        await self.terminal.press(key)

    async def write(self, key: str, text: str) -> None:
        """Press *key*, and enter *text* where it asks for one."""
        self.actions += 1
        await self.terminal.press(key)
        await self.terminal.type(text)
        await self.terminal.press("Enter")


def unfolded(text: str) -> str:
    """Return *text* in one line."""
    return " ".join(text.split())


async def why_503(operator: Operator) -> None:
    await operator.write("/", "lost")
    await operator.terminal.shows(lambda text: "1 of 1" in text and "lost.localhost/" in text)
    await operator.press("Enter")
    shown = "\n".join(await operator.terminal.shows("From request to server: lost.localhost/"))
    assert "503: backend default_empty_80 has no enabled server" in shown
    assert "NoEndpoints: the Service default/empty has" in shown


async def why_404(operator: Operator) -> None:
    await operator.write("m", "http://foreign.localhost/shop")
    shown = "\n".join(await operator.terminal.shows("404: no entry matches"))
    assert "Ingress default/foreign names this host, but its class is nginx" in shown


async def why_reloaded(operator: Operator) -> None:
    await operator.press("2")
    # A deployment that waits for its reload names the backend, but not the cause.
    lines = await operator.terminal.shows(lambda text: "caused by" in text and "Ingress default/more" in unfolded(text))
    assert "backend default_more_80 added" in unfolded("\n".join(lines))


async def which_certificate_expires(operator: Operator) -> None:
    await operator.press("2")
    lines = await operator.terminal.shows(lambda text: "Certificates: " in text and "later.localhost" in text)
    soonest = lines[next(at for at, line in enumerate(lines) if line.startswith("Certificates: ")) + 1]
    assert "soon.localhost" in soonest
    assert "in 8 d" in soonest or "in 9 d" in soonest
    assert "Secret default/soon" in soonest


async def what_matches(operator: Operator) -> None:
    await operator.write("m", "POST web.localhost/cart")
    shown = "\n".join(await operator.terminal.shows("From request to server: web.localhost/cart"))
    for part in ("POST web.localhost/cart", "backend default_web_80", "maps/path-prefix.map:", "127.0.0.1:"):
        assert part in shown


STORIES: tuple[Story, ...] = (why_503, why_404, why_reloaded, which_certificate_expires, what_matches)


async def prepare(site: Site, running: Running, terminal: Terminal, routes: int) -> None:
    """Write objects with problems, so that there are *routes*, and wait until the first screen has them."""
    write_failing_objects(site)
    await terminal.shows(f"1 of {routes - 1}")
    await running.quiet()
    site.write("more", *service("more", 1), ingress("more", "more.localhost", "more"))
    await terminal.shows(f"1 of {routes}")
    await running.quiet()


@pytest.mark.parametrize("story", STORIES)
async def test_question_is_answered_in_three_actions(
    site: Site, haproxy_binary: Path, tmux: Path, story: Story
) -> None:
    site.write_tls_config()
    async with looking(site, haproxy_binary, tmux) as (running, terminal):
        await prepare(site, running, terminal, 5)
        operator = Operator(terminal)

        await story(operator)

        assert operator.actions <= 3


@pytest.mark.slow
async def test_questions_are_answered_among_thousands_of_routes(site: Site, haproxy_binary: Path, tmux: Path) -> None:
    site.write_tls_config()
    site.write("many", *(ingress(f"m{number}", f"host{number}.example.com", "web") for number in range(2_000)))
    async with looking(site, haproxy_binary, tmux) as (running, terminal):
        await prepare(site, running, terminal, 2_005)
        for story in STORIES:
            operator = Operator(terminal)
            await story(operator)
            assert operator.actions <= 3
            # Back to the first screen.
            await terminal.press("1")
            lines = await terminal.shows(lambda text: "[Routes]" in text and "\nSTATE " in text)
            if "search: " in lines[23]:
                await terminal.press("Escape")
            await terminal.shows(lambda text: "  1 of 2005" in text)

        await terminal.press("End")
        await terminal.shows(lambda text: "2005 of 2005" in text and "web.localhost/" in text)


async def test_screen_fits_other_sizes_and_objects_cannot_drive_the_terminal(
    site: Site, haproxy_binary: Path, tmux: Path
) -> None:
    async with looking(site, haproxy_binary, tmux) as (_running, terminal):
        site.write("bad", ingress("bad", "bad\x1b[2J\x9b31m\rhost", "web"), ingress("wide", "店.localhost", "web"))
        lines = await terminal.shows(r"bad\x1b[2j\x9b31m\rhost/")
        assert lines[0].startswith("haptic-trio  Ready, leader, 1 instance  ")
        assert lines[23].startswith(KEYS)

        await terminal.resize(120, 40)
        lines = await terminal.shows("BACKEND")
        assert lines[39].startswith(KEYS)
        await terminal.resize(60, 10)
        assert (await terminal.shows(lambda text: "BACKEND" not in text))[9].startswith("/ search")


async def test_lost_connection_is_shown_and_opened_again(site: Site, haproxy_binary: Path, tmux: Path) -> None:
    async with AsyncExitStack() as rest:
        async with serving_web(site, haproxy_binary):
            terminal = await rest.enter_async_context(open_terminal(tmux, command(site)))
            await terminal.shows("web.localhost")
        lines = await terminal.shows("Not connected: ")
        # The last routes stay visible.
        assert "web.localhost" in "\n".join(lines)
        async with serving_web(site, haproxy_binary):
            await terminal.shows("Ready, leader, 1 instance")


@pytest.mark.parametrize("key", ["q", "C-c", "SIGTERM"])
async def test_terminal_is_restored_at_the_end(site: Site, haproxy_binary: Path, tmux: Path, key: str) -> None:
    async with looking(site, haproxy_binary, tmux) as (_running, terminal):
        await (terminal.terminate() if key == "SIGTERM" else terminal.press(key))

        lines = await terminal.shows("terminal restored")
        assert lines[0] == "exit code 0"


async def test_terminal_is_restored_after_an_error_of_the_program(site: Site, haproxy_binary: Path, tmux: Path) -> None:
    script = (
        "import sys; from haptic_trio.cli.terminal.known import Known; from haptic_trio.cli.main import main\n"
        "Known.take = lambda *_: 1 / 0\n"
        f"sys.argv = ['haptic-trio', 'debug', '--state-dir', {str(site.state)!r}]; main()"
    )
    async with (
        serving_web(site, haproxy_binary),
        open_terminal(tmux, [sys.executable, "-c", script], height=100) as terminal,
    ):
        lines = await terminal.shows("terminal restored")

        assert "exit code 1" in lines
        assert "ZeroDivisionError" in "\n".join(lines)


async def test_without_colours_the_focus_is_reverse(site: Site, haproxy_binary: Path, tmux: Path) -> None:
    async with looking(site, haproxy_binary, tmux, NO_COLOR="1") as (_running, terminal):
        await terminal.shows("web.localhost")
        shown = "\n".join(await terminal.lines(colours=True))

        codes = {code for codes in re.findall(r"\x1b\[([\d;]*)m", shown) for code in codes.split(";")}
        assert "7" in codes
        assert not codes & {str(number) for number in (*range(30, 38), 38, *range(40, 48), *range(90, 108))}


async def test_without_a_controller_the_error_is_plain(site: Site, tmux: Path) -> None:
    async with open_terminal(tmux, command(site)) as terminal:
        lines = await terminal.shows("terminal restored")

        assert lines[0].startswith("error: no console found")
        assert "exit code 2" in lines
