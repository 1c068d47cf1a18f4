"""Options of `bind` and `server` lines: iteration over them, and checks of names and argument counts."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from haptic_trio.haproxy.grammar.keywords import Keywords
from haptic_trio.haproxy.model import Directive

Fault: TypeAlias = tuple[int, str, Iterable[str]]
"""Index of a word, its problem, and the words that are valid in its place."""

_SERVER_NAME: Final = re.compile("[A-Za-z0-9_:.-]+")


class Option(NamedTuple):
    """An option of a `bind` or `server` line, its index, and its arguments."""

    name: str
    at: int
    values: tuple[str, ...]


def walk_options(words: tuple[str, ...], start: int, counts: Mapping[str, int]) -> Iterator[Option]:
    """Yield the options in *words* from *start* on.

    Ends early at an option with an unknown or variable number of arguments.
    """
    index = start
    while index < len(words):
        name = words[index]
        count = _count(name, counts)
        if count is None or count < 0:
            return
        yield Option(name, index, words[index + 1 : index + 1 + count])
        index += 1 + count


def check_bind(directive: Directive, keywords: Keywords) -> Iterator[Fault]:
    """Check a `bind` line: an address and known, complete options."""
    if len(directive.words) < 2:
        yield 0, "'bind' needs an address", ()
        return
    yield from _check_options(directive, 2, keywords.bind, "bind")


def check_server(directive: Directive, keywords: Keywords) -> Iterator[Fault]:
    """Check a `server` line: a name, an address, and known, complete options."""
    if len(directive.words) < 3:
        yield 0, "'server' needs a name and an address", ()
        return
    if 1 not in directive.raw and not _SERVER_NAME.fullmatch(directive.words[1]):
        yield 1, "character not permitted in the name of a server", ()
    yield from _check_options(directive, 3, keywords.server, "server")


def check_template(directive: Directive, keywords: Keywords) -> Iterator[Fault]:
    """Check a `server-template` line: a prefix, a count, an address, and known, complete options."""
    if len(directive.words) < 4:
        yield 0, "'server-template' needs a prefix, a number, and an address", ()
        return
    yield from _check_options(directive, 4, keywords.server, "server-template")


def check_default_server(directive: Directive, keywords: Keywords) -> Iterator[Fault]:
    """Check a `default-server` line: known, complete options."""
    yield from _check_options(directive, 1, keywords.server, "default-server")


def _check_options(directive: Directive, start: int, counts: Mapping[str, int], what: str) -> Iterator[Fault]:
    # A reference to the environment may expand to any number of words.
    if directive.raw or _all_known(directive.words, start, counts):
        return
    words, index = directive.words, start
    for option in walk_options(words, start, counts):
        count = _count(option.name, counts) or 0
        if len(option.values) < count:
            yield option.at, f"'{option.name}' needs {count} argument" + "s" * (count > 1), ()
        index = option.at + 1 + count
    if index < len(words) and words[index] and _count(words[index], counts) is None:
        yield index, f"unknown {what} option '{words[index]}'", counts


def _all_known(words: tuple[str, ...], start: int, counts: Mapping[str, int]) -> bool:
    """Whether every option is plain, known, and complete, as on almost all lines; a fast check."""
    index, end = start, len(words)
    while index < end:
        count = counts.get(words[index], -1)
        if count < 0:
            return False
        index += 1 + count
    return index == end


def _count(name: str, counts: Mapping[str, int]) -> int | None:
    count = counts.get(name)
    if count is None and "(" in name:
        return counts.get(name.partition("(")[0] + "*")
    return count
