"""Search for a text in haproxy.cfg and all its files."""

from haptic_trio.explain.answers import MOST_HITS, Hit, SearchAnswer
from haptic_trio.explain.site import MAIN, Site


def search(site: Site, text: str) -> SearchAnswer:
    """Return the lines that contain *text*, ignoring case; lines that derive from a Secret are not searched."""
    needle = text.casefold()
    found: list[Hit] = []
    count = 0
    for path in sorted(site.texts, key=lambda path: (path != MAIN, path)):
        if needle not in site.texts[path].text.casefold():
            continue
        lines = site.lines_of(path)
        for first, last, origin in site.ranges.between(path, 1, len(lines)):
            hits = [number for number in range(first, last + 1) if needle in lines[number - 1].casefold()]
            if not hits or site.is_secret(path, origin):
                continue
            for number in hits[: MOST_HITS - len(found)]:
                line = site.line(path, number, lines[number - 1], origin)
                found.append(Hit(line=line, made_by=site.made_by(path, origin)))
            count += len(hits)
    return SearchAnswer(text=text, hits=tuple(found), count=count)
