"""Recorded lookups of a rendering, and lookups of which only one part of the answer counts.

A rendering that asked only for a part renders again only if that part changes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

Question: TypeAlias = tuple[str, ...]
"""A lookup: its kind, and its arguments.

- `("get", store, *keys)`: which objects the store has under these keys; without keys, all of them
- `("has", store, *keys)`, the question of each `Part`: one aspect of these objects
- `("object", store, namespace, name, kind)`: content of an on-demand object; only while it is unavailable
- `("file", path)`: which file is registered at this path
- `("lines", output)`: whether an output has entries
- `("room", namespace)`: room in the namespace's share; only by a fragment that found none
- `("quarantined", namespace, name, kind)`: whether an object is quarantined
- `("template", name)`: an included or imported template

Other sources of answers, such as the HTTP content store, use a kind of their own.
"""

Aspect: TypeAlias = str | Callable[[Sequence[Any]], Any]
"""Part of an answer: the values at a JSONPath in each object, or the result of a function of all objects."""

EXISTENCE: Final = ""
"""The aspect of a lookup that is whether it finds anything."""

Answer: TypeAlias = Callable[[Aspect, tuple[str, ...]], Any]
"""Answers one aspect of a lookup by keys again, as its store is now. The language provides it; see `Touched`."""

UNKNOWN: Final = object()
"""The answer of a part that has to be looked up."""


class Part:
    """One aspect of the answer to the question `("has", store, *keys)`.

    Compared by identity: a `DependencyIndex` has one part for each question and aspect, and copies of it have the same.
    """

    __slots__ = ("aspect", "question")

    def __init__(self, question: Question, aspect: Aspect) -> None:
        """Make the part *aspect*, which is hashable, of *question*."""
        self.question = question
        self.aspect = aspect


Dependency: TypeAlias = Question | Part
"""A question, or one part of its answer, that the output of a rendering depends on."""


def whole(asked: Iterable[Dependency]) -> tuple[Question, ...]:
    """Return the questions of *asked*, each once, whatever parts of it were asked."""
    return tuple(dict.fromkeys(one.question if isinstance(one, Part) else one for one in asked))
