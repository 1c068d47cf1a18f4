"""Search for a text in haproxy.cfg and all its files."""

from bisect import bisect_right

from haptic_trio.explain.answers import MOST_HITS, Hit, Line, SearchAnswer
from haptic_trio.explain.site import MAIN, Site
from haptic_trio.templating.values.subjects import Origin

MOST_CONTEXT = 5
"""Maximum number of lines before and after a found line."""


def search(site: Site, text: str, *, context: int = 0, offset: int = 0, limit: int = MOST_HITS) -> SearchAnswer:
    """Return the lines that contain *text*, ignoring case; lines that derive from a Secret are not searched.

    At most *limit* and `MOST_HITS` of them are listed, from the 0-based
    *offset* on. Each has up to *context* and `MOST_CONTEXT` lines before and
    after it, redacted if they derive from a Secret.
    """
    needle = text.casefold()
    around = max(0, min(context, MOST_CONTEXT))
    first_hit = max(0, offset)
    last_hit = first_hit + max(1, min(limit, MOST_HITS))
    found: list[Hit] = []
    count = 0
    for path in sorted(site.texts, key=lambda path: (path != MAIN, path)):
        if needle not in site.texts[path].text.casefold():
            continue
        file = _File(site, path)
        for first, last, origin in file.ranges:
            numbers = [number for number in range(first, last + 1) if needle in file.lines[number - 1].casefold()]
            if not numbers or site.is_secret(path, origin):
                continue
            listed = numbers[max(0, first_hit - count) : max(0, last_hit - count)]
            found += [file.hit(number, origin, around) for number in listed]
            count += len(numbers)
    return SearchAnswer(text=text, hits=tuple(found), count=count, offset=first_hit)


class _File:
    """The lines of a file and their origins."""

    def __init__(self, site: Site, path: str) -> None:
        self._site = site
        self._path = path
        self.lines = site.lines_of(path)
        self.ranges = list(site.ranges.between(path, 1, len(self.lines)))
        self._starts = [first for first, _last, _origin in self.ranges]

    def hit(self, number: int, origin: Origin | None, around: int) -> Hit:
        """Return the line *number* with the lines *around* it."""
        return Hit(
            line=self._line(number),
            made_by=self._site.made_by(self._path, origin),
            before=tuple(self._line(at) for at in range(max(1, number - around), number)),
            after=tuple(self._line(at) for at in range(number + 1, min(len(self.lines), number + around) + 1)),
        )

    def _line(self, number: int) -> Line:
        _first, _last, origin = self.ranges[bisect_right(self._starts, number) - 1]
        return self._site.line(self._path, number, self.lines[number - 1], origin)
