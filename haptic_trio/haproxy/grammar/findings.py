"""Findings of a directive's check, and their hints."""

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from haptic_trio.haproxy.grammar.keywords import versions_that_know
from haptic_trio.haproxy.model import Directive


class Finding(NamedTuple):
    """A problem of a word of a directive."""

    directive: Directive
    word: int
    """Index of the word; an index beyond the last word reports a missing word."""
    message: str
    hint: str = ""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a hint with the closest of *known*; empty if none is close."""
    nearest = difflib.get_close_matches(word, [name.rstrip("*") for name in known], n=1, cutoff=0.6)
    return f"did you mean '{nearest[0]}'?" if nearest else ""


def hint_at(word: str, known: Iterable[str], group: str) -> str:
    """Return a hint for *word*, not one of *known*: the versions that have it in *group*, else the closest word."""
    versions = versions_that_know(group, word)
    if not versions:
        return suggest(word, known)
    if len(versions) == 1:
        return f"HAProxy {versions[0]} knows it, the target version does not"
    return f"HAProxy {', '.join(versions[:-1])} and {versions[-1]} know it, the target version does not"
