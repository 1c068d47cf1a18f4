"""Words that messages about output may quote although the output may derive from a Secret."""

from collections.abc import Iterable
from functools import cached_property


class TemplateWords:
    """The words of templates, which are no data. They are found when they are first asked for."""

    def __init__(self, sources: Iterable[str] = ()) -> None:
        self._sources = tuple(sources)

    def __contains__(self, word: object) -> bool:
        return word in self._words

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(word for source in self._sources for word in source.split())
