"""The terminal UI: keys, the visible tab, and what it follows and asks of the console."""

import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
import urwid
from rich.text import Text
from urwid.display.raw import Screen as RawScreen

from haptic_trio.cli.console_client import ConsoleRejectedError, NoConsoleError
from haptic_trio.cli.output.findings import quantity
from haptic_trio.cli.terminal.cards import (
    HELP,
    Card,
    MalformedRequestError,
    explanation_card,
    match_card,
    parse_request,
    text_card,
)
from haptic_trio.cli.terminal.files import Files
from haptic_trio.cli.terminal.known import Known
from haptic_trio.cli.terminal.route_pages import RoutePages
from haptic_trio.cli.terminal.rows import Details, Explain, Match, OpenFile, Opens, found, plain
from haptic_trio.cli.terminal.screen import PALETTE, Screen
from haptic_trio.cli.terminal.session import Session
from haptic_trio.cli.terminal.tabs import ACTIVITY, CONFIGURATION, LEVELS, ROUTES, TABS, card_rows
from haptic_trio.cli.terminal.walker import Walker

KEYS = "/ search  Enter details  m match a request  ? keys  q quit"
CARD_KEYS = "Esc back  Enter explain the place or object  q quit"
_ALWAYS = ("state", "events", "diff")


class App:
    """State of the UI: it receives the messages of *session*. *spawn* starts a task for a request."""

    def __init__(self, session: Session, spawn: Callable[..., None]) -> None:
        self.known = Known()
        self._session = session
        self._spawn = spawn
        self._tab = ROUTES
        self._level = "info"
        self._width = 80
        self._lost = ""
        self._note = ""
        self._searches = [""] * len(TABS)
        self._cards: list[tuple[Card, Walker]] = []
        self.routes = RoutePages(self.known, self._follow, self._show_position)
        self.files = Files(self._session.ask, shown=self._show, moved=self._show_position, start=self._start)
        walkers = [Walker(self._show_position) for _ in TABS]
        walkers[ROUTES], walkers[CONFIGURATION] = self.routes.walker, self.files.walker
        self._walkers = walkers
        self.screen = Screen(self.press, self._resize)
        self._actions: dict[str, Callable[[], None]] = {
            "q": self._quit,
            "Q": self._quit,
            "?": lambda: self._push(text_card("Keys", HELP)),
            "/": self._search,
            "m": self._ask_request,
            "e": self._ask_target,
            "s": self._next_state,
            "l": self._next_level,
            "f": lambda: self._start(self._choose_file),
            "d": lambda: self._start(self._show_change),
            "enter": self._open_row,
            "esc": self._back,
            "backspace": self._back,
            "tab": lambda: self._select((self._tab + 1) % len(TABS)),
            "right": lambda: self._select((self._tab + 1) % len(TABS)),
            "shift tab": lambda: self._select((self._tab - 1) % len(TABS)),
            "left": lambda: self._select((self._tab - 1) % len(TABS)),
            **{str(number + 1): partial(self._select, number) for number in range(len(TABS))},
        }
        self._show()

    def subscription(self) -> dict[str, Any]:
        """Return the subscription for what is visible."""
        wanted = {"topics": [*_ALWAYS, *TABS[self._tab].topics], "since": self.known.seen, **self.routes.wanted}
        if self._cards and self._cards[-1][0].backends:
            backends = [*self._cards[-1][0].backends, *wanted["backends"]]
            wanted["backends"] = list(dict.fromkeys(backends))[: RoutePages.most_backends]
            wanted["topics"] = list(dict.fromkeys([*wanted["topics"], "live"]))
        return wanted

    def welcome(self, message: dict[str, Any]) -> None:
        """Take the first message of a connection."""
        self._lost = ""
        self.known.welcome(message)
        self._show()

    def lost(self, reason: str) -> None:
        """Show that the connection is lost, and why."""
        self._lost = reason
        self._show()

    def take(self, message: dict[str, Any]) -> None:
        """Take a message of the subscription, and show it."""
        self.known.take(message)
        match message["kind"]:
            case "routes":
                self.routes.take()
            case "live":
                self.routes.refresh()
            case "diff" if self._tab == CONFIGURATION:
                self._start(self.files.load)
        self._show()

    def press(self, key: str) -> bool:
        """Act on *key*; returns False for keys of the list."""
        action = self._actions.get(key)
        if action is None:
            return False
        self._note = ""
        action()
        self._show()
        return True

    def _start(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        self._spawn(self._run, task, *arguments)

    async def _run(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run *task*; what the console rejects is shown."""
        try:
            await task(*arguments)
        except (ConsoleRejectedError, NoConsoleError) as exc:
            self._push(text_card("No answer", plain(str(exc)), "red"))

    def _follow(self) -> None:
        self._session.follow(self.subscription)

    def _resize(self, width: int) -> None:
        self._width = width
        self._show()

    def _show(self) -> None:
        """Show the present state."""
        tab = TABS[self._tab]
        self.screen.show_headline(self._headline())
        titles = [one.title for one in TABS]
        if count := self._problem_count():
            titles[2] += f" ({count})"
        self.screen.show_tabs(titles, self._tab)
        if self._cards:
            card, walker = self._cards[-1]
            walker.show(card_rows(card.lines(self._width)))
            self.screen.show_header(Text(plain(card.title), style="bold"))
        else:
            walker = self._walkers[self._tab]
            if tab.rows is not None:
                walker.show(found(tab.rows(self.known, self._width, self._level), self._searches[self._tab]))
            header = self.files.title if self._tab == CONFIGURATION else tab.header(self._width)
            self.screen.show_header(header)
        self.screen.show_list(walker)
        self._show_position()

    def _show_position(self, _position: int = 0) -> None:
        walker = self._cards[-1][1] if self._cards else self._walkers[self._tab]
        keys = CARD_KEYS if self._cards else self._filters() or KEYS
        position = f"{walker.focus + 1} of {walker.total}" if walker.total else "nothing"
        self.screen.show_footer(self._note or keys, position)

    def _filters(self) -> str:
        parts = [f"search: {self._searches[self._tab]}"] if self._searches[self._tab] else []
        if self._tab == ROUTES and self.routes.state:
            parts.append(f"state: {self.routes.state}")
        return f"{', '.join(parts)}  (Esc shows all)" if parts else ""

    def _headline(self) -> Text:
        state = self.known.state
        line = Text("haptic-trio  ", style="bold")
        if self._lost:
            return line.append(plain(f"Not connected: {self._lost}; reconnecting"), style="red")
        if state is None:
            return line.append("Connected", style="yellow")
        now = state["iteration"]
        stage = state["stages"][-1]["name"] if state["stages"] else "none"
        status = "Starting" if now is None else "Ready" if now["is_ready"] else f"Starting, stage {stage}"
        line.append(status, style="green" if status == "Ready" else "yellow")
        count = quantity(len(state["instances"]), "instance")
        line.append(f", {'leader' if state['is_leader'] else 'follower'}, {count}")
        objects = state["objects"]
        style = "yellow" if objects["quarantined"] or objects["warnings"] else "dim"
        line.append(f"  {objects['quarantined']} quarantined, {quantity(objects['warnings'], 'warning')}", style=style)
        return line

    def _problem_count(self) -> int:
        state = self.known.state
        if state is None:
            return 0
        failing = sum(bool(one.get("error")) for one in state["instances"])
        inputs = sum(len(texts) for texts in state["problems"].values())
        return int(state["objects"]["quarantined"]) + int(state["objects"]["warnings"]) + inputs + failing

    def _select(self, tab: int) -> None:
        self._close_cards()
        self._tab = tab
        self._follow()
        if tab == CONFIGURATION:
            self._start(self.files.load)

    def _close_cards(self) -> None:
        for _card, walker in self._cards:
            self.screen.forget_list(walker)
        self._cards.clear()

    def _push(self, card: Card) -> None:
        self._cards.append((card, Walker(self._show_position)))
        if card.backends:
            self._follow()
        self._show()

    def _back(self) -> None:
        if self._cards:
            card, walker = self._cards.pop()
            self.screen.forget_list(walker)
            if card.backends:
                self._follow()
        elif self._tab == CONFIGURATION:
            self._searches[self._tab] = ""
            self._start(self.files.search, "")
        else:
            if self._tab == ROUTES and self.routes.state:
                self.routes.state = ""
                self.routes.restart()
            self._apply_search("")

    def _quit(self) -> None:
        raise urwid.ExitMainLoop

    def _search(self) -> None:
        before = self._searches[self._tab]
        self._close_cards()
        changed = self._apply_search if self._tab != CONFIGURATION else None
        self.screen.prompt(
            "Search: ", before, self._apply_search, changed=changed, dropped=partial(self._apply_search, "")
        )

    def _apply_search(self, text: str) -> None:
        if text != self._searches[self._tab]:
            self._searches[self._tab] = text
            self._walkers[self._tab].restart()
            if self._tab == ROUTES:
                self.routes.search = text
                self.routes.restart()
            elif self._tab == CONFIGURATION:
                self._start(self.files.search, text)
        self._show()

    def _ask_request(self) -> None:
        self.screen.prompt("Request: ", "", self._match)

    def _match(self, text: str) -> None:
        if not text.strip():
            return
        try:
            request = parse_request(text)
        except MalformedRequestError as exc:
            self._note = str(exc)
            self._show()
        else:
            self._start(self._open, request)

    def _ask_target(self) -> None:
        self.screen.prompt(
            "Explain: ", "", lambda text: self._start(self._open, Explain(text)) if text.strip() else None
        )

    def _next_state(self) -> None:
        if self._tab == ROUTES:
            self.routes.next_state()

    def _next_level(self) -> None:
        if self._tab == ACTIVITY:
            self._level = LEVELS[(LEVELS.index(self._level) + 1) % len(LEVELS)]

    def _open_row(self) -> None:
        walker = self._cards[-1][1] if self._cards else self._walkers[self._tab]
        if walker.row is not None and walker.row.opens is not None:
            self._start(self._open, walker.row.opens)

    async def _open(self, opens: Opens) -> None:
        match opens:
            case Match(target=target, method=method, headers=headers):
                value = await self._session.ask("match", target=target, method=method, headers=headers)
                self._push(match_card(opens, value, self.known))
            case Explain(target=target):
                self._push(explanation_card(target, await self._session.ask("explain", target=target)))
            case Details(title=title, lines=lines):
                self._push(Card(title, lambda _width: lines()))
            case OpenFile(path=path):
                await self.files.open(path)

    async def _choose_file(self) -> None:
        self._select(CONFIGURATION)
        await self.files.list_files()

    async def _show_change(self) -> None:
        self._push(await self.files.change())


async def run_terminal(find: Callable[[], tuple[str, str]]) -> None:
    """Show the UI for the console that *find* finds, until the user quits or SIGTERM arrives.

    *find* returns URL and token. Raises `NoConsoleError` if no console answers
    at first. The terminal is restored in any case.
    """
    events = urwid.TrioEventLoop()
    display = RawScreen()
    if os.environ.get("NO_COLOR"):
        display.set_terminal_properties(colors=1)
    async with trio.open_nursery() as nursery:
        session = Session(find)
        app = App(session, nursery.start_soon)
        session.follow(app.subscription)
        await nursery.start(session.run, app)
        nursery.start_soon(_cancel_at_sigterm, nursery.cancel_scope)
        loop = urwid.MainLoop(app.screen, PALETTE, display, handle_mouse=False, event_loop=events)
        with loop.start():
            await events.run_async()
        nursery.cancel_scope.cancel(reason="the user quits")


async def _cancel_at_sigterm(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _number in signals:
            scope.cancel(reason="SIGTERM")
