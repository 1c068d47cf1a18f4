"""The tab Configuration: pages of a file, lines found in all files, and the last change."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from rich.text import Text

from haptic_trio.cli.output.debug import config_lines, diff_lines
from haptic_trio.cli.output.findings import quantity
from haptic_trio.cli.terminal.cards import Card
from haptic_trio.cli.terminal.rows import Explain, OpenFile, Row, plain, text_row
from haptic_trio.cli.terminal.walker import Walker
from haptic_trio.explain.site import MAIN

PAGE: Final = 200
_MARGIN: Final = 50
"""Lines before the end of the page from which the next one is requested."""


class Ask(Protocol):
    """Requests to the console."""

    def __call__(self, topic: str, **arguments: Any) -> Awaitable[Any]:
        """Return the answer about *topic*."""


class Files:
    """The file that is shown.

    *shown* is called after the list has changed, *moved* after the focus has;
    *start* starts a task that requests another page.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        shown: Callable[[], None],
        moved: Callable[[int], None],
        start: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self.path = MAIN
        self.title = Text("LINES AND THEIR OBJECTS", style="bold")
        self.walker = Walker(self._move)
        self._ask = ask
        self._shown = shown
        self._moved = moved
        self._start = start
        self._offset = 0
        self._total = 0
        self._text = ""
        self._is_list = False

    async def load(self) -> None:
        """Show the page around the focus."""
        path = self.path
        if not self._shows(path):
            return
        page = await self._ask("config", path=path, offset=self._offset, limit=PAGE)
        if not self._shows(path):
            # Something else was chosen meanwhile.
            return
        numbers = [one["line"] for one in page["lines"]]
        rows = [
            text_row(f"{path}:{number}", line, Explain(f"{path}:{number}"))
            for number, line in zip(numbers, config_lines(page), strict=True)
        ]
        self._total = page["total"]
        self.title = Text(plain(f"{path}: {quantity(page['total'], 'line')}  (f another file, d last change)"), "bold")
        self.walker.show(rows, offset=page["offset"], total=page["total"])
        self._shown()

    def _shows(self, path: str) -> bool:
        return path == self.path and not self._text and not self._is_list

    async def search(self, text: str) -> None:
        """Show the lines of all files that contain *text*; without one, the file."""
        self._text, self._is_list, self._offset = text, False, 0
        if not text:
            await self.load()
            return
        answer = await self._ask("search", search=text)
        if text != self._text:
            return
        self.title = Text(plain(f"{quantity(answer['count'], 'line')} with {text!r} in all files"), "bold")
        self.walker.show([_hit_row(one) for one in answer["hits"]])
        self._shown()

    async def list_files(self) -> None:
        """Show the names of the files, to choose one."""
        self._is_list, self._text = True, ""
        page = await self._ask("config", path=MAIN, offset=0, limit=1)
        self.title = Text("Choose a file with Enter", style="bold")
        self.walker.show([text_row(path, Text(plain(path)), OpenFile(path)) for path in page["files"]])
        self._shown()

    async def open(self, path: str) -> None:
        """Show the file *path* from its beginning."""
        self.path, self._text, self._is_list, self._offset = path, "", False, 0
        self.walker.restart()
        await self.load()

    async def change(self) -> Card:
        """Return the last change of haproxy.cfg that a client has seen."""
        page = await self._ask("diff")
        return Card("Last change of haproxy.cfg", lambda _width: diff_lines(page))

    def _move(self, position: int) -> None:
        self._moved(position)
        first, last = self._offset, self._offset + PAGE
        is_near = (position < first + _MARGIN and first > 0) or (position >= last - _MARGIN and last < self._total)
        if is_near and self._shows(self.path):
            self._offset = max(0, position - PAGE // 2)
            self._start(self.load)


def _hit_row(hit: dict[str, Any]) -> Row:
    line = hit["line"]
    place = f"{line['path']}:{line['line']}"
    text = Text(f"{place}  ", style="dim")
    text.append(plain(line["text"].strip()), style="magenta" if line["is_secret"] else "default")
    if made_by := hit["made_by"].get("object"):
        name = f"{made_by['namespace']}/{made_by['name']}" if made_by["namespace"] else made_by["name"]
        text.append(plain(f"  # {made_by['kind']} {name}"), style="cyan")
    return text_row(place, text, Explain(place))
