"""Layout of the terminal UI: headline, tabs, the list, and a line for keys or input."""

from collections.abc import Callable
from typing import Any, Final

import urwid
from rich.text import Text

from haptic_trio.cli.terminal.rows import plain
from haptic_trio.cli.terminal.walker import Walker, markup_of

_SYNONYMS: Final = {"j": "down", "k": "up", "g": "home", "G": "end"}

PALETTE: Final = [
    ("red", "dark red", "default", "bold"),
    ("yellow", "brown", "default", "default"),
    ("green", "dark green", "default", "default"),
    ("cyan", "dark cyan", "default", "default"),
    ("magenta", "dark magenta", "default", "default"),
    ("dim", "dark gray", "default", "default"),
    ("bold", "bold", "default", "bold"),
    ("bold red", "dark red,bold", "default", "bold"),
    ("focus", "standout", "default", "standout"),
    ("chosen", "standout", "default", "standout"),
]
"""Colours, and what replaces them without colours."""


class Screen(urwid.WidgetWrap["urwid.Frame[Any, Any, Any]"]):
    """The whole screen. *pressed* gets each key that is not typed into a prompt; it returns whether it took the key.

    *resized* is called when the width has changed, before the screen is drawn.
    """

    def __init__(self, pressed: Callable[[str], bool], resized: Callable[[int], None]) -> None:
        self._pressed = pressed
        self._resized = resized
        self._width = 0
        self._headline = urwid.Text("", wrap="clip")
        self._tabs = urwid.Text("", wrap="clip")
        self._header = urwid.Text("", wrap="clip")
        self._keys = urwid.Text("", wrap="clip")
        self._position = urwid.Text("", align="right", wrap="clip")
        self._footer = urwid.Columns([self._keys, ("pack", self._position)], dividechars=1)
        self._prompt: _Prompt | None = None
        self._done: Callable[[str], None] = lambda _text: None
        self._dropped: Callable[[], None] = lambda: None
        self._lists: dict[int, urwid.ListBox[int]] = {}
        header = urwid.Pile([("pack", one) for one in (self._headline, self._tabs, self._header)])
        super().__init__(urwid.Frame(urwid.SolidFill(" "), header=header, footer=self._footer))

    def show_headline(self, text: Text) -> None:
        """Show *text* at the top."""
        self._headline.set_text(markup_of(text))

    def show_tabs(self, titles: list[str], chosen: int) -> None:
        """Show *titles*, of which *chosen* is marked."""
        markup: list[str | tuple[str, str]] = []
        for number, title in enumerate(titles):
            shown = plain(title)
            markup.append(("chosen", f"[{shown}]") if number == chosen else f" {shown} ")
        self._tabs.set_text(markup)

    def show_header(self, text: Text) -> None:
        """Show *text* above the list."""
        self._header.set_text(markup_of(text))

    def show_footer(self, keys: str, position: str) -> None:
        """Show *keys*, or another note, and the *position* in the list."""
        self._keys.set_text(plain(keys))
        self._position.set_text(plain(position))

    def show_list(self, walker: Walker) -> None:
        """Show the rows of *walker*; a list that was shown before stays where it was scrolled to."""
        known = self._lists.get(id(walker))
        if known is None or known.body is not walker:
            known = self._lists[id(walker)] = urwid.ListBox(walker)
        if self._w.body is not known:
            self._w.body = known

    def forget_list(self, walker: Walker) -> None:
        """Drop the list of *walker*, which is not shown again."""
        self._lists.pop(id(walker), None)

    def prompt(
        self,
        caption: str,
        text: str,
        done: Callable[[str], None],
        *,
        changed: Callable[[str], None] | None = None,
        dropped: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask for a text in the last line; *done* gets it after Enter, *changed* while it is typed.

        *dropped* is called after Esc.
        """
        self._prompt = edit = _Prompt(("bold", caption), text, wrap="clip")
        self._done, self._dropped = done, dropped
        if changed is not None:
            urwid.connect_signal(edit, "change", lambda _edit, new: changed(new))
        self._w.footer = edit
        self._w.focus_position = "footer"

    def keypress(self, size: Any, key: str) -> str | None:
        """Pass *key* to the prompt, the actions, or the list."""
        if self._prompt is not None:
            self._type(size, key)
            return None
        key = _SYNONYMS.get(key, key)
        if self._pressed(key):
            return None
        super().keypress(size, key)
        return None

    def _type(self, size: Any, key: str) -> None:
        edit = self._prompt
        assert edit is not None
        if key not in {"enter", "esc"}:
            super().keypress(size, key)
            return
        self._prompt = None
        self._w.footer = self._footer
        self._w.focus_position = "body"
        if key == "enter":
            self._done(edit.edit_text)
        else:
            self._dropped()

    def render(self, size: Any, focus: bool = False) -> urwid.Canvas:
        """Draw the screen."""
        if size[0] != self._width:
            self._width = size[0]
            self._resized(size[0])
        return super().render(size, focus)


class _Prompt(urwid.Edit):
    """A line of input; keys that it does not use are ignored, so that the focus stays in it."""

    def keypress(self, size: tuple[int], key: str) -> str | None:  # type: ignore[override]
        """Edit the line."""
        if key not in {"up", "down", "tab", "page up", "page down"}:
            super().keypress(size, key)
        return None
