"""Vocabulary of the shipped templates: any other syntax in their output comes from data."""

import ipaddress
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable

from haptic_trio.haproxy.config.parser import SectionCache, parse_config, read_section
from haptic_trio.haproxy.model import Config, Directive, Section
from haptic_trio.templating.filters.values import _VARIABLES  # what stands for the variables of redirects

_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_EXPRESSION = re.compile(r"%(?:\{[^}]*\})?\[[^\]]*\]")
_CALL = re.compile(r"(?:^|,)([A-Za-z0-9_.-]+)")
_ARGUMENTS = re.compile(r"\([^()]*\)")
_VARIABLE = re.compile(r'"?\$HAPTIC_TRIO_DESCRIPTORS"?')
"""The variable of the environment that the templates use, as a whole word."""
_PARSED = SectionCache()
_SERVER = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9.]+)):([0-9]{1,5})")


@cache
def sources() -> str:
    """Return the text of all templates of all libraries, without their comments."""

    def texts(folder: Traversable) -> Iterator[str]:
        for item in sorted(folder.iterdir(), key=lambda one: one.name):
            if item.is_dir():
                yield from texts(item)
            elif item.name.endswith(".j2") and not item.name.endswith(".lua.j2"):
                yield item.read_text("utf-8")

    return _COMMENT.sub("", "\n".join(texts(package_files("haptic_trio.libraries"))))


@cache
def tokens() -> frozenset[str]:
    """Return every word that the templates hold."""
    return frozenset(_TOKEN.findall(sources()))


@cache
def expressions() -> frozenset[str]:
    """Return every log-format expression that the templates hold, or the variables of redirects stand for."""
    return frozenset(_EXPRESSION.findall(sources())) | frozenset(_VARIABLES.values())


def foreign_syntax(text: str) -> list[str]:
    """Return what in the configuration *text* no template has written: sections, keywords, fetches, references.

    The parser rejects what could be read in more ways than one.
    """
    config: Config = parse_config(text, source="haproxy.cfg", cache=_PARSED)
    return [complaint for section in config.sections for complaint in _complaints(section.text)]


@lru_cache(maxsize=2_000)
def _complaints(text: str) -> tuple[str, ...]:
    section = read_section(text)
    return tuple(_in_section(section)) if section is not None else ("no section",)


def _in_section(section: Section) -> Iterator[str]:
    if section.kind not in tokens():
        yield f"section {section.kind}"
    for directive in (section.header, *section.directives):
        for complaint in _in_line(directive):
            yield f"{complaint}: {' '.join(directive.words)}"


def _in_line(line: Directive) -> Iterator[str]:
    # `.if` and its like stand in templates without the dot, too.
    words = (line.words[0].lstrip("."), *line.words[1:])
    if any(_VARIABLE.sub("", line.words[at]) != "" for at in line.raw):
        yield "a reference to the environment"
    if words[0] not in tokens():
        yield f"the keyword {words[0]!r}"
    if words[0] in {"http-request", "http-response", "http-after-response", "tcp-request", "option", "timeout"}:
        action = words[1].split("(")[0]
        if action not in tokens():
            yield f"the action {action!r}"
    if words[0] == "server":
        yield from _in_server(words)
    start = next((at for at in range(1, len(words)) if words[at] in ("if", "unless")), len(words))
    for word in words[1:start]:
        plain = word.replace("%%", "")
        yield from (f"the expression {found}" for found in _EXPRESSION.findall(plain) if found not in expressions())
        if re.search(r"%[-+\"{A-Za-z\[]", _EXPRESSION.sub("", plain)):
            yield f"a log-format variable in {word!r}"
    for at in range(start, len(words) - 1):
        if words[at].lstrip("!") == "{":
            criterion = words[at + 1]
            while _ARGUMENTS.search(criterion):
                criterion = _ARGUMENTS.sub("", criterion)
            yield from (f"the fetch {name!r}" for name in _CALL.findall(criterion) if name not in tokens())


def _in_server(words: tuple[str, ...]) -> Iterator[str]:
    address = _SERVER.fullmatch(words[2])
    if address is None:
        yield "an address that is none"
    else:
        ipaddress.ip_address(address[1] or address[2])
        if not 0 < int(address[3]) < 65_536:
            yield "a port that is none"
    for word in words[3:]:
        if not re.fullmatch(r"[A-Za-z0-9_.:/@,()\[\]=-]*", word):
            yield f"the option {word!r}"
