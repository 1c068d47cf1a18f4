"""Redirects: the hosts that are sent to HTTPS, and Locations with more than data in them."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final
from urllib.parse import unquote

from tests.attacks.inputs.shapes import sections, words_of

_EXPRESSION: Final = re.compile(r"%%|%\[pathq\]|%\[var\(txn\.(?:host|scheme|waf_location)\)\]")
"""A percent sign, or what a library puts in a Location itself."""
_KINDS: Final = frozenset({"location", "prefix", "scheme"})
_CONTROL: Final = re.compile(r"[\0-\x20\x7f]")
_FIELDS: Final = tuple(
    re.compile(pattern)
    for pattern in (r"https?|", r"(?!-)[a-z0-9.-]*", r"[0-9]{0,5}", r"30[12378]", r"[fp]?", r"/.*|", r"/.*|")
)
"""Those of a Gateway's redirect: scheme, host, port, status, kind of path, new path, prefix."""


def is_sent_to_https(host: str, files: Mapping[str, str]) -> bool:
    """Whether plain requests for *host* are redirected by `tls-host.map`, as the frontends ask it."""
    hosts = {line.partition(" ")[0] for line in files["maps/tls-host.map"].split("\n")}
    return host in hosts or ("*." + host.partition(".")[2] in hosts and f"-{host}" not in hosts)


def faulty_redirects(text: str) -> Iterator[str]:
    """Yield the redirects of a configuration whose Location has an expression that no library puts there."""
    for name, lines in sections(text).items():
        for line in lines:
            if " redirect " in line:
                words = [word.value for word in words_of(line)]
                places = [after for word, after in pairwise(words) if word in _KINDS]
                rest = _EXPRESSION.sub("", places[0])
                if "%" in rest or _CONTROL.search(rest):
                    yield f"{name}: {line.strip()}"


def foreign_redirects(text: str, own: str) -> Iterator[tuple[str, str]]:
    """Yield section and line of the redirects outside of backends and frontends with *own* in their names."""
    for name, lines in sections(text).items():
        if own not in name:
            yield from ((name, line.strip()) for line in lines if " redirect " in line)


def faulty_items(rules: str) -> Iterator[str]:
    """Yield the redirects of a Gateway's map of rules that are more than a URL."""
    for line in rules.split("\n"):
        for item in re.split("[; ]", line):
            if item.startswith("rd,"):
                fields = [unquote(field, errors="strict") for field in item.split(",")[1:]]
                fits = [pattern.fullmatch(field) for pattern, field in zip(_FIELDS, fields, strict=True)]
                if not all(fits) or any(map(_CONTROL.search, fields)):
                    yield line
