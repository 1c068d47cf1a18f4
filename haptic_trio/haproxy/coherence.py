"""What must fit between sections: unique names, `from` references, and matching `.if` and `.endif`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from haptic_trio.haproxy.grammar import UNNAMED_KINDS, Finding, read_header, suggest
from haptic_trio.haproxy.model import Directive, Section
from haptic_trio.haproxy.unlisted import PROXY_KINDS

# A `listen` is a frontend and a backend; HAProxy only warns of a repeated userlist and skips it.
_NAMESPACES: Final = {"frontend": ("frontend",), "backend": ("backend",), "listen": ("frontend", "backend")}
_MAY_REPEAT: Final = frozenset({"defaults", "userlist"})


def check_coherence(
    sections: Sequence[Section], conditional: Sequence[bool], macros: Iterable[Directive]
) -> Iterator[Finding]:
    """Check what no section can know alone.

    *conditional* says of each section whether it begins inside an `.if`:
    such a section may exist in several branches.
    """
    yield from _check_names(sections, conditional)
    yield from _check_bases(sections, conditional)
    yield from _check_nesting(macros)


def _check_names(sections: Sequence[Section], conditional: Sequence[bool]) -> Iterator[Finding]:
    seen: dict[tuple[str, str], Section] = {}
    for section, inside in zip(sections, conditional, strict=True):
        kind, name = section.key
        if inside or not name or kind in _MAY_REPEAT or kind in UNNAMED_KINDS or 1 in section.header.raw:
            continue
        spaces = _NAMESPACES.get(kind, (kind,))
        first = next((seen[space, name] for space in spaces if (space, name) in seen), None)
        if first is not None:
            hint = f"the first is the {first.kind} at line {first.header.line}"
            yield Finding(section.header, 1, f"{kind} '{name}' has the name of another section", hint)
        for space in spaces:
            seen.setdefault((space, name), section)


def _check_bases(sections: Sequence[Section], conditional: Sequence[bool]) -> Iterator[Finding]:
    lines: dict[str, list[int]] = {}
    uncertain: set[str] = set()
    for section, inside in zip(sections, conditional, strict=True):
        kind, header = section.kind, section.header
        if kind not in PROXY_KINDS:
            continue
        parts = read_header(header.words)
        # The base is the last word that counts.
        base, word = parts.base, parts.extra - 1
        if base and not inside and word not in header.raw:
            if base not in lines:
                yield Finding(header, word, f"no defaults section '{base}' before this line", suggest(base, lines))
            elif len(lines[base]) > 1 and base not in uncertain:
                where = " and ".join(map(str, lines[base]))
                yield Finding(header, word, f"several defaults sections are named '{base}'", f"at lines {where}")
        if kind == "defaults" and section.name:
            lines.setdefault(section.name, []).append(header.line)
            if inside:
                uncertain.add(section.name)


def _check_nesting(macros: Iterable[Directive]) -> Iterator[Finding]:
    opened: list[tuple[Directive, bool]] = []
    for macro in macros:
        keyword = macro.keyword
        if keyword == ".if":
            opened.append((macro, False))
        elif keyword not in {".elif", ".else", ".endif"}:
            continue
        elif not opened:
            yield Finding(macro, 0, f"'{keyword}' without '.if'")
        elif keyword == ".endif":
            opened.pop()
        elif opened[-1][1]:
            yield Finding(macro, 0, f"'{keyword}' after '.else'")
        elif keyword == ".else":
            opened[-1] = (opened[-1][0], True)
    for macro, _ in opened:
        yield Finding(macro, 0, "'.if' without '.endif'", "it ends with '.endif'")
