"""Explanation of a line, a section or a file."""

from collections.abc import Iterator
from itertools import islice

from haptic_trio.explain.answers import FileAnswer, LineAnswer, Part, SectionAnswer
from haptic_trio.explain.routes import routes_to
from haptic_trio.explain.site import MAIN, Site, hidden, identity
from haptic_trio.explain.targets import UnknownTargetError
from haptic_trio.explain.template_lines import find_sources
from haptic_trio.haproxy.model import Section, digest_of
from haptic_trio.templating.incremental.questions import Question
from haptic_trio.templating.values.subjects import Origin, Subject

_MOST_PARTS = 100
_MOST_ASKING = 50
"""Maximum number of fragments of a section or file whose lookups are listed."""


def explain_line(site: Site, path: str, line: int) -> LineAnswer:
    """Return the explanation of *line* of *path*, which must exist; raises `UnknownTargetError` for a missing line."""
    lines = site.lines_of(path)
    maker = site.provenance.maker_of(path, line) if 1 <= line <= len(lines) else None
    if maker is None:
        last = f"{path}:{len(lines)}"
        raise UnknownTargetError(f"{path} has {len(lines)} lines", (last,) if lines else ())
    text = lines[line - 1]
    subjects = [maker.origin.subject] if maker.origin is not None else []
    return LineAnswer(
        line=site.line(path, line, text, maker.origin),
        section=section_at(site, line) if path == MAIN else "",
        made_by=site.made_by(path, maker.origin),
        sources=find_sources(site.templates, text, maker.origin, maker.output),
        depends_on=site.lookups(maker.asked),
        problems=site.problems_of(*subjects),
    )


def section_at(site: Site, line: int) -> str:
    """Return the title of the section with *line* of haproxy.cfg; empty if unknown."""
    found = site.config.locate(line) if site.config is not None else None
    return shown_title(site, found[0], line - found[1] + 1) if found is not None else ""


def title_of(section: Section) -> str:
    """Return kind and name of *section*."""
    return f"{section.kind} {section.name}".rstrip()


def shown_title(site: Site, section: Section, first: int) -> str:
    """Return kind and name of *section*, which begins at line *first*, redacted if it is secret."""
    if site.is_secret(MAIN, site.texts[MAIN].origin_of(first)):
        return f"{section.kind} ({hidden(section.name)})"
    return title_of(section)


def shown_sections(site: Site) -> dict[str, str]:
    """Return the titles of all sections without secret names, by name."""
    if site.config is None:
        return {}
    firsts = list(site.config.first_lines())
    if not firsts:
        return {}
    secret: set[int] = set()
    for first, last, origin in site.ranges.between(MAIN, 1, firsts[-1]):
        if site.is_secret(MAIN, origin):
            secret.update(range(first, last + 1))
    sections = zip(site.config.sections, firsts, strict=True)
    return {section.name: title_of(section) for section, first in sections if first not in secret}


def sections_called(site: Site, name: str, kind: str = "") -> list[tuple[Section, int]]:
    """Return the sections *name*, optionally of *kind*, and their first lines."""
    if site.config is None:
        return []
    return [
        (section, first)
        for section, first in zip(site.config.sections, site.config.first_lines(), strict=True)
        if section.name == name and (not kind or section.kind == kind)
    ]


def explain_section(site: Site, section: Section, first: int) -> SectionAnswer:
    """Return the explanation of *section* of haproxy.cfg, which begins at line *first*."""
    # Blank lines before the next section belong to it in the model; the last one is not a line of the file.
    last = first + max(0, len(section.text.rstrip().split("\n")) - 1)
    stretches = list(site.ranges.between(MAIN, first, last))
    routes = list(routes_to(site, section.name)) if section.kind in {"backend", "listen"} else []
    origins = [origin for _, _, origin in stretches]
    return SectionAnswer(
        section=title_of(section),
        first=first,
        last=last,
        parts=tuple(_parts(site, MAIN, stretches)),
        routes=tuple(routes[:_MOST_PARTS]),
        routes_count=len(routes),
        depends_on=site.lookups(_asked(site, MAIN, origins)),
        problems=site.problems_of(*_subjects(origins)),
    )


def explain_file(site: Site, path: str) -> FileAnswer:
    """Return the explanation of the file *path*, which must exist."""
    count = len(site.lines_of(path))
    stretches = list(site.ranges.between(path, 1, count))
    file = site.files.get(path)
    content = site.texts[path].text.encode(errors="surrogatepass")
    origins = [origin for _, _, origin in stretches]
    return FileAnswer(
        path=path,
        kind=str(file.kind) if file is not None else "configuration",
        size=file.size if file is not None else len(content),
        digest=file.digest if file is not None else digest_of(content),
        is_secret=file is not None and file.secret,
        lines=count,
        output=site.provenance.output_of(path) or "",
        parts=tuple(islice(_parts(site, path, stretches), _MOST_PARTS)),
        parts_count=len(stretches),
        depends_on=site.lookups(_asked(site, path, origins)),
        problems=site.problems_of(*_subjects(origins)),
    )


def _parts(site: Site, path: str, stretches: list[tuple[int, int, Origin | None]]) -> Iterator[Part]:
    for first, last, origin in stretches:
        yield Part(first=first, last=last, made_by=site.made_by(path, origin))


def _asked(site: Site, path: str, origins: list[Origin | None]) -> set[Question]:
    asked: set[Question] = set()
    for origin in list(dict.fromkeys(origins))[:_MOST_ASKING]:
        if origin is None:
            asked.update(site.provenance.asked_in(site.provenance.output_of(path) or ""))
        else:
            asked.update(site.provenance.asked_by(origin.key))
    return asked


def _subjects(origins: list[Origin | None]) -> list[Subject]:
    return list({identity(origin.subject): origin.subject for origin in origins if origin is not None}.values())
