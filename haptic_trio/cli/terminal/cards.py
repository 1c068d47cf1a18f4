"""Cards: what Enter shows about a row, and the answers to typed requests."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from rich.text import Text

from haptic_trio.cli.output.explain import lines_of, rows_of
from haptic_trio.cli.output.request_match import rows_of_match
from haptic_trio.cli.terminal.known import Known
from haptic_trio.cli.terminal.rows import Match
from haptic_trio.cli.terminal.tabs import field_lines
from haptic_trio.explain.answers import Answer
from haptic_trio.explain.requests import RequestMatch

HELP = """\
1 to 6, Tab, Left, Right    another tab
Up, Down, Page Up, Page Down, Home, End    move
/       search in the tab; in Routes by host, path, object and backend; in
        Configuration in all files. Esc ends the search
Enter   details of the row: of a route, the card from request to server; of a
        line or object, its explanation
Esc     back
m       what would this request match? It is not sent. For example
        POST shop.example.com/cart -H 'X-Kind: a'
e       explain a line, section, host or object, such as haproxy.cfg:12
s       Routes: only those with the next state
f       Configuration: another file
d       Configuration: the last change
l       Activity: events of the next level and above
q       quit, as Ctrl-C does"""


class Card(msgspec.Struct, frozen=True):
    """A text in place of the list of a tab."""

    title: str
    lines: Callable[[int], Iterable[Text]]
    """Returns its lines for a width; they may change with the live figures."""
    backends: tuple[str, ...] = ()
    """Backends of which it shows live figures."""


class MalformedRequestError(ValueError):
    """A typed request cannot be understood."""


def parse_request(text: str) -> Match:
    """Return the request that *text* describes, as `[METHOD] HOST/PATH [-H 'NAME: VALUE']…`.

    Raises `MalformedRequestError`.
    """
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise MalformedRequestError(f"{exc}: quote headers, as in -H 'X-Kind: a'") from exc
    method = "GET"
    targets: list[str] = []
    headers: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        if word in {"-H", "--header"}:
            name, colon, value = next(rest, "").partition(":")
            if not colon:
                raise MalformedRequestError("a header has no value; write -H 'NAME: VALUE'")
            headers.append((name.strip(), value.strip()))
        elif word.isalpha() and word.isupper() and not targets:
            method = word
        else:
            targets.append(word)
    if len(targets) != 1:
        raise MalformedRequestError("write one host with a path, such as shop.example.com/cart")
    return Match(targets[0], method, tuple(headers))


def match_card(request: Match, value: Any, known: Known) -> Card:
    """Return the card of the answer *value* to *request*, with the live figures of *known*."""
    title = f"From request to server: {request.target}"
    try:
        match = msgspec.convert(value, RequestMatch)
        tuple(rows_of_match(match, request.method, {}))
    except msgspec.ValidationError:
        # The controller has another version.
        return Card(title, lambda _width: field_lines(value))
    return Card(
        title,
        lambda width: lines_of(rows_of_match(match, request.method, known.figures), width),
        tuple(one.name for one in match.backends),
    )


def explanation_card(target: str, value: Mapping[str, Any]) -> Card:
    """Return the card of the explanation *value* of *target*."""
    try:
        answer: Answer = msgspec.convert(value, Answer)
    except msgspec.ValidationError:
        return Card(target, lambda _width: field_lines(value))
    return Card(target, lambda width: lines_of(rows_of(answer), width))


def text_card(title: str, text: str, style: str = "") -> Card:
    """Return a card with *text*."""
    return Card(title, lambda _width: [Text(line, style=style) for line in text.splitlines()])
