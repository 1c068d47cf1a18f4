"""Recorded lookups of a rendering, and lookups of which only one part of the answer counts.

A rendering that asked only for a part renders again only if that part changes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Self, TypeAlias

Dependency: TypeAlias = tuple[str, ...]
"""Question that a rendering asked: its kind, and its arguments.

- `("get", store, *keys)`: which objects the store has under these keys; without keys, all of them
- `("has", store, *keys)`, always a `Part`: one aspect of these objects
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


class Part(tuple[str, ...]):  # noqa: SLOT001  a tuple cannot have any
    """One aspect of a lookup result; as a tuple, the question `("has", store, *keys)`.

    Compared by identity: a `DependencyIndex` has one part for each question and aspect, and copies of it have the same.
    """

    question: tuple[str, ...]
    aspect: Aspect
    """Hashable."""

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __new__(cls, question: tuple[str, ...], aspect: Aspect) -> Self:
        part = tuple.__new__(cls, question)
        part.question = question
        part.aspect = aspect
        return part
