"""Dependencies on part of a lookup result: a fragment renders again only if that part changes."""

from typing import Any, Final, Self

UNKNOWN: Final = object()
"""Stands for an answer that has to be looked for."""


class Part(tuple[str, ...]):  # noqa: SLOT001  a tuple cannot have any
    """One aspect of what a look-up finds, and nothing else of it; as a tuple, the question `("has", store, *keys)`.

    A `DependencyIndex` has one of each, so they are compared by identity.
    """

    question: tuple[str, ...]
    aspect: Any
    """What is asked: whether there is anything, what is at a path, or what a function makes of it; hashable."""
    answer: Any
    """As it is now, or `UNKNOWN`."""

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __new__(cls, question: tuple[str, ...], aspect: Any) -> Self:
        part = super().__new__(cls, question)
        part.question = question
        part.aspect = aspect
        part.answer = UNKNOWN
        return part
