"""Reduced configuration for `haproxy -c`: unchanged sections are replaced by short ones.

HAProxy reads every backend to check a change of one. Parts that it has
accepted before and that no changed section refers to need not be read again.
An unchanged backend that consists of servers only is omitted, or reduced to
its header if another section names it. Unchanged maps and crt-lists are
reduced to their first line. An accepted reduced configuration still has to be
checked completely before it is final. A rejection may be caused by the
reduction, so it counts only after a complete check.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Final

from haptic_trio.chunked import Paged
from haptic_trio.haproxy.config.certificates import parse_crt_list
from haptic_trio.haproxy.grammar.placement import read_header
from haptic_trio.haproxy.model import (
    AuxFile,
    Config,
    Directive,
    FileKind,
    Generation,
    Section,
    make_file,
    make_files,
    make_generation,
    seal_of,
)

WORTHWHILE: Final = 0.25
"""Largest share of sections to read with which a reduced configuration is worthwhile."""

_NAMES: Final = re.compile(r"[\w.:-]+")
_READ_FOLDERS: Final = frozenset({"crt", "ca-file", "ca-verify-file"})
_SHARED_KINDS: Final = frozenset({"global", "defaults"})


def reduce_generation(accepted: Generation, wanted: Generation) -> Generation | None:
    """Return *wanted* reduced by the parts that it shares with *accepted*, which HAProxy has accepted.

    None if that is not possible or not worthwhile. The cost depends on the
    differences and on the sections other than backends.
    """
    before, after = accepted.config, wanted.config
    if before.branched or after.branched or before.preamble != after.preamble or not len(after.sections):
        return None
    for kind in _SHARED_KINDS:
        # A change of these sections changes the meaning of all others.
        if [one.seal for one in before.all(kind)] != [one.seal for one in after.all(kind)]:
            return None
    most = int(WORTHWHILE * len(after.sections))
    # If almost everything has changed, the rest of the comparison would be in vain.
    kept = list(islice(_sections_to_read(before, after), most + 1))
    if len(kept) > most:
        return None
    named = _names_in(kept)
    files = _files_to_read(accepted, wanted, kept)
    if files is None:
        return None
    have = {section.key for section in kept}
    lines = [_reduced_section(after, name) for name in sorted(named) if ("backend", name) not in have]
    sections = Paged.of([*kept, *(line for line in lines if line is not None)])
    return make_generation(Config(sections, after.preamble, after.head), make_files(files))


def _sections_to_read(before: Config, after: Config) -> Iterator[Section]:
    known = {id(page) for page in before.sections.pages}
    for page in after.sections.pages:
        always = page.summary(_always_read)
        if id(page) in known:
            yield from always
            continue
        for section in page.items:
            found = before.find(*section.key)
            if found is None or found.seal != section.seal or any(section is one for one in always):
                yield section


def _always_read(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """Return the sections that cannot be reduced."""
    return tuple(section for section in sections if not _is_plain(section))


def _is_plain(section: Section) -> bool:
    return (
        section.kind == "backend"
        and bool(read_header(section.header.words).base)
        and all(one.keyword == "server" for one in section.directives)
    )


def _reduced_section(config: Config, name: str) -> Section | None:
    section = config.find("backend", name)
    if section is None:
        return None
    text = f"{section.text.splitlines()[0]}\n"
    return Section("backend", name, section.header, (), text, seal_of(text))


def _names_in(sections: Iterable[Section]) -> set[str]:
    return {
        name
        for section in sections
        for line in section.directives
        for word in line.words
        for name in _NAMES.findall(word)
    }


def _files_to_read(accepted: Generation, wanted: Generation, kept: Iterable[Section]) -> list[AuxFile] | None:
    lines = [line for section in kept for line in (section.header, *section.directives)]
    mine, _theirs = wanted.files.differing(accepted.files)
    changed = {path for path, file in mine.items() if accepted.files.get(path) != file}
    files: dict[str, AuxFile] = {}
    for path in {word for line in lines for word in _paths_in(line) if word in wanted.files}:
        file = wanted.files[path]
        if path in changed or file.kind not in {FileKind.MAP, FileKind.CRT_LIST}:
            files[path] = file
        elif file.kind is FileKind.MAP:
            files[path] = _first_line(file)
    for path in {word for line in lines for word in _paths_in(line)}:
        listed = wanted.files.get(path)
        if listed is not None and listed.kind is FileKind.CRT_LIST:
            short = _shorten(listed, accepted.files.get(path), changed, files, wanted)
            if not short:
                return None
    folders = {word.rstrip("/") for line in lines for option, word in pairwise(line.words) if option in _READ_FOLDERS}
    if any(path.rpartition("/")[0] in folders for path in wanted.files if path not in files):
        # HAProxy reads every file in the folder.
        return None
    return list(files.values())


def _paths_in(line: Directive) -> Iterator[str]:
    for word in line.words:
        yield word
        yield from re.split(r"[(),@\s]+", word)


def _first_line(file: AuxFile) -> AuxFile:
    line = next((line for line in file.content.splitlines() if line and not line.startswith(b"#")), b"")
    return make_file(file.kind, file.path, line + b"\n", secret=file.secret)


def _shorten(
    listed: AuxFile, before: AuxFile | None, changed: set[str], files: dict[str, AuxFile], wanted: Generation
) -> bool:
    """Add *listed* to *files*, with only its new entries and those of changed certificates, and these certificates."""
    entries = parse_crt_list(listed.content)
    known = parse_crt_list(before.content) if before is not None else ()
    if entries is None or known is None:
        return False
    old = {entry.line for entry in known}
    # The first one is the default certificate.
    short = [
        entry
        for place, entry in enumerate(entries)
        if place == 0 or entry.line not in old or entry.certificate in changed
    ]
    for entry in short:
        certificate = wanted.files.get(entry.certificate)
        if certificate is not None:
            files[certificate.path] = certificate
    content = "".join(f"{entry.line}\n" for entry in short)
    files[listed.path] = make_file(FileKind.CRT_LIST, listed.path, content, secret=listed.secret)
    return True
