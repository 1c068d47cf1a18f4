"""Check for snippets that no template includes."""

import re
from collections.abc import Collection, Iterator
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final

from haptic_trio.config.model import Config
from haptic_trio.config.templates import template_set
from haptic_trio.errors import Problem
from haptic_trio.yaml.paths import key_path

_PATTERN: Final = re.compile(r"""(?:include_snippets\s+|\bsnippets\(\s*)["']([^"']+)["']""")
_QUOTED: Final = re.compile(r"""["']([^"'\n]+)["']""")
_ALIKE: Final = 0.6


def find_unused_snippets(config: Config, names: Collection[str]) -> Iterator[Problem]:
    """Yield a warning about each snippet of *names* that no template of *config* includes or names."""
    texts = template_set(config).texts
    patterns = sorted(set(chain.from_iterable(_PATTERN.findall(text) for text in texts.values())))
    named = {quoted for text in texts.values() for quoted in _QUOTED.findall(text)}
    for name in sorted(names):
        if name not in named and not any(fnmatchcase(name, pattern) for pattern in patterns):
            yield Problem(
                message=f"no template includes the snippet {name!r}, so it has no effect",
                path=key_path("templateSnippets", name),
                hint=_hint(name, patterns),
            )


def _hint(name: str, patterns: Collection[str]) -> str:
    prefixes = [pattern.removesuffix("*") for pattern in patterns if pattern.endswith("*")]
    if not prefixes:
        return "include it by its name"
    likeness, nearest = max((_likeness(name, prefix), prefix) for prefix in prefixes)
    if likeness >= _ALIKE:
        rest = name[_overlap(name, nearest) :].lstrip("-")
        return f"did you mean `{nearest}{rest or name}`? Snippets with the prefix `{nearest}` are included"
    return f"begin its name with an extension point: {', '.join(f'`{prefix}`' for prefix in prefixes)}"


def _likeness(name: str, prefix: str) -> float:
    return SequenceMatcher(None, name[: len(prefix)], prefix, autojunk=False).ratio()


def _overlap(name: str, prefix: str) -> int:
    """Return the length of the beginning of *name* that stands for *prefix*: as many words."""
    place = 0
    for _ in range(prefix.count("-")):
        found = name.find("-", place)
        if found < 0:
            break
        place = found + 1
    return place
