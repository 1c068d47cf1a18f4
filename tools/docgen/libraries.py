"""The pages of the shipped libraries, made from themselves: `python -m tools.docgen.libraries`.

With a directory as argument, replaces everything below the marker line of each
library's page there; without one, prints all references to standard output.
"""

import fnmatch
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from haptic_trio.config.libraries import LibraryDoc, library_names, load_library
from haptic_trio.config.model import Template
from haptic_trio.config.settings import Setting, SettingType, limits_of
from tools.docgen.configuration import cell, replace_below

MARKER: Final = "<!-- Below this line the page is made from the library: python -m tools.docgen.libraries -->"

_WORDS: Final[Mapping[SettingType, str]] = {
    SettingType.SWITCH: "true or false",
    SettingType.NUMBER: "number",
    SettingType.PORT: "port",
    SettingType.PORTS: "port or range",
    SettingType.DURATION: "time",
    SettingType.SIZE: "size",
    SettingType.TEXT: "text",
    SettingType.WORD: "text without blanks",
    SettingType.NAME: "name",
    SettingType.HEADER: "name of a header",
    SettingType.HEADERS: "name of a header, or of several with `*`",
    SettingType.ADDRESS: "IP address",
    SettingType.NETWORK: "address or network",
    SettingType.ENDPOINT: "host:port",
    SettingType.REFERENCE: "namespace/name",
    SettingType.NAMESPACES: "namespaces",
    SettingType.ANYTHING: "anything",
    SettingType.LIST: "list",
    SettingType.MAPPING: "mapping",
}
_FILE_GROUPS: Final = (
    ("map", "maps"),
    ("file", "files"),
    ("certificate", "ssl_certificates"),
    ("crt-list", "crt_lists"),
)
_COMMENT: Final = re.compile(r"\s*\{#-?\s*(.*?)\s*-?#\}", re.DOTALL)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|\n\s*\n|:\n|;\s")


def library_page(name: str) -> str:
    """Return the generated part of the page of the library *name*."""
    library = load_library(name)
    points = {
        point: meaning for one in library_names() for point, meaning in load_library(one).extension_points.items()
    }
    sections = (
        *_settings(library),
        *_extension_points(library),
        *_snippets(library, points),
        *_watched(library),
        *_files(library),
    )
    return "\n\n".join(sections) + "\n"


def write_pages(directory: Path) -> None:
    """Replace the generated part of each library's page in *directory*; raises OSError, ValueError."""
    for name in library_names():
        replace_below(directory / f"{name}.md", MARKER, library_page(name))


def summary_of(template: str) -> str:
    """Return the first sentence of the comment that *template* begins with; empty without one."""
    found = _COMMENT.match(template)
    return " ".join(_SENTENCE_END.split(found[1], maxsplit=1)[0].split()) if found else ""


def _settings(library: LibraryDoc) -> Iterator[str]:
    if not library.settings:
        return
    yield "## Settings"
    yield "Keys of `templating.extraContext`, which every template sees by these names."
    for heading, group in library.settings.items():
        rows = [
            (f"`{key}`", _type(setting), _plain(setting.default), setting.meaning) for key, setting in group.items()
        ]
        yield f"### {heading}\n\n{_table(('Key', 'Type', 'Default', 'Meaning'), rows)}"


def _type(setting: Setting) -> str:
    if setting.type is SettingType.LIST:
        return f"list of: {_WORDS[setting.of or SettingType.TEXT]}"
    if setting.type is SettingType.MAPPING:
        keys = ", ".join(setting.values) or _WORDS[setting.keys]
        return f"mapping of {keys} to {_WORDS[setting.of or SettingType.TEXT]}"
    if setting.values:
        return " or ".join(f"`{value}`" for value in setting.values)
    limits = limits_of(setting)
    return f"{_WORDS[setting.type]} {limits}" if limits else _WORDS[setting.type]


def _plain(value: Any) -> str:
    if value in ("", [], {}):
        return "empty"
    if isinstance(value, str):
        return f"`{value}`"
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{msgspec.json.encode(value).decode()}`"


def _extension_points(library: LibraryDoc) -> Iterator[str]:
    if library.extension_points:
        yield "## Extension points"
        yield (
            "A snippet whose name begins so is included there, by `priority` (500 unless it says otherwise) and then by"
            " name."
        )
        rows = [(f"`{point}`", meaning) for point, meaning in library.extension_points.items()]
        yield _table(("Prefix", "Place"), rows)


def _snippets(library: LibraryDoc, points: Iterable[str]) -> Iterator[str]:
    ordered = sorted(points)
    rows = []
    for name, snippet in library.template_snippets.items():
        point = next((one for one in ordered if fnmatch.fnmatchcase(name, one)), "")
        order = str(snippet.priority) if point else ""
        rows.append((f"`{name}`", f"`{point}`" if point else "", order, summary_of(snippet.template)))
    if rows:
        yield "## Snippets"
        yield (
            "Each can be replaced by one of the same name under `templateSnippets`. Those without an extension point"
            " are included or imported by their names."
        )
        yield _table(("Name", "Extension point", "Priority", "What it is"), rows)


def _watched(library: LibraryDoc) -> Iterator[str]:
    rows = []
    for name, watched in library.watched_resources.items():
        limits = [one for one in (watched.label_selector, watched.field_selector) if one]
        rows.append(
            (
                f"`{name}`",
                f"`{watched.resources}` of `{watched.api_version}`" + (f", `{' '.join(limits)}`" if limits else ""),
                ", ".join(f"`{path}`" for path in watched.index_by),
                "yes" if watched.required else "may be absent",
            )
        )
    if rows:
        yield "## Watched resources"
        yield _table(("Name", "Objects", "Looked up by", "Required"), rows)


def _files(library: LibraryDoc) -> Iterator[str]:
    rows = []
    for kind, attribute in _FILE_GROUPS:
        templates: Mapping[str, Template] = getattr(library, attribute)
        rows += [(f"`{name}`", kind, summary_of(template.template)) for name, template in templates.items()]
    if rows:
        yield "## Files"
        yield _table(("Name", "Kind", "What is in it"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_pages(Path(sys.argv[1]))
    else:
        sys.stdout.write("\n".join(f"# {name}\n\n{library_page(name)}" for name in library_names()))
