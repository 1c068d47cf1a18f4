"""Reduced configuration for `haproxy -c`: unchanged sections are replaced by short ones.

HAProxy reads every backend to check a change of one. What it has accepted
before, and what nobody refers to now, need not be read again: unchanged
backends of nothing but servers are left out, or are one line where another
section names them, and of unchanged maps and lists of certificates the first
line is enough. What is accepted so has still to be read as a whole; what is
refused may be refused for a stand-in, so a refusal counts for nothing before
the whole has been read.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
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
"""Nothing is gained where more than this part of the sections has to be read anyway."""

_NAMES: Final = re.compile(r"[\w.:-]+")
_READ_FOLDERS: Final = frozenset({"crt", "ca-file", "ca-verify-file"})
_SHARED_KINDS: Final = frozenset({"global", "defaults"})


def with_stand_ins(accepted: Generation, wanted: Generation) -> Generation | None:
    """Return *wanted* with stand-ins for what *accepted*, which HAProxy has accepted, has as well.

    None where that is not possible or not worth it. The cost is that of what
    differs and of the sections other than backends.
    """
    before, after = accepted.config, wanted.config
    if before.branched or after.branched or before.preamble != after.preamble or not len(after.sections):
        return None
    for kind in _SHARED_KINDS:
        # Other sections mean something else with these changed.
        if [one.seal for one in before.all(kind)] != [one.seal for one in after.all(kind)]:
            return None
    kept = list(_sections_to_read(before, after))
    if len(kept) > WORTHWHILE * len(after.sections):
        return None
    named = _names_in(kept)
    files = _files_to_read(accepted, wanted, kept)
    if files is None:
        return None
    have = {section.key for section in kept}
    lines = [_stand_in(after, name) for name in sorted(named) if ("backend", name) not in have]
    sections = Paged.of([*kept, *(line for line in lines if line is not None)])
    return make_generation(Config(sections, after.preamble, after.head), make_files(files))


def _sections_to_read(before: Config, after: Config) -> Iterator[Section]:
    known = {id(page) for page in before.sections.pages}
    for page in after.sections.pages:
        odd = page.summary(_odd_ones)
        if id(page) in known:
            yield from odd
            continue
        for section in page.items:
            found = before.find(*section.key)
            if found is None or found.seal != section.seal or any(section is one for one in odd):
                yield section


def _odd_ones(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """Return those for which nothing can stand in."""
    return tuple(section for section in sections if not _is_plain(section))


def _is_plain(section: Section) -> bool:
    return (
        section.kind == "backend"
        and bool(read_header(section.header.words).base)
        and all(one.keyword == "server" for one in section.directives)
    )


def _stand_in(config: Config, name: str) -> Section | None:
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
        # HAProxy reads every file in it.
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
    """Put *listed* into *files* with the entries that are new, or whose certificates are, and these certificates."""
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
