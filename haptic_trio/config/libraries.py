"""Shipped libraries: reusable parts of a configuration, loaded by name."""

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode

from haptic_trio.config.decode import UNKNOWN_FIELD, Decoded, decode_document, nearest_hint
from haptic_trio.config.model import Config, Snippet, Template, ValidationTest, WatchedResource
from haptic_trio.config.settings import Setting, check_defaults, flat_settings
from haptic_trio.config.yaml.document import STR_TAG, Document, enclosing_paths, parse_document
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.yaml.paths import key_path

_TEMPLATE_GROUPS = ("templateSnippets", "maps", "files", "sslCertificates", "crtLists")
_USERS_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(Config))
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")

V = TypeVar("V")


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class LibraryTemplating(_Part, frozen=True):
    """Section `templating` of a library."""

    extra_context: dict[str, Any] = {}
    """Defaults of top-level variables that are not settings; in a library that has been read, those of settings too."""


class LibraryDoc(_Part, frozen=True):
    """One library: the fields of `Config` that it may contribute to, with the same meaning."""

    name: str
    description: str
    requires: tuple[str, ...] = ()
    """Libraries whose templates or watched resources it uses."""
    settings: dict[str, dict[str, Setting]] = {}
    """Variables with their types and defaults, under headings."""
    extension_points: dict[str, str] = {}
    """Purpose of each extension point: a place where a template includes all snippets with a prefix in their names,
    such as `global-*`; Markdown."""
    templating: LibraryTemplating = LibraryTemplating()
    watched_resources: dict[str, WatchedResource] = {}
    template_snippets: dict[str, Snippet] = {}
    maps: dict[str, Template] = {}
    files: dict[str, Template] = {}
    ssl_certificates: dict[str, Template] = {}
    crt_lists: dict[str, Template] = {}
    haproxy_config: Template | None = None
    validation_tests: dict[str, ValidationTest] = {}


def library_names() -> tuple[str, ...]:
    """Return the names of all shipped libraries, in order."""
    root = _root()
    if not root.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in root.iterdir() if entry.joinpath("library.yaml").is_file()))


def load_library(name: str) -> LibraryDoc:
    """Return the shipped library *name*; raises `ConfigInvalidError`, with the nearest name for an unknown one."""
    return read_library(name).value


def read_library(name: str) -> Decoded[LibraryDoc]:
    """Return the shipped library *name* with its places; raises `ConfigInvalidError` as `load_library` does."""
    known = library_names()
    if name not in known:
        raise ConfigInvalidError([Problem(message=f"there is no library {name!r}", hint=nearest_hint(name, known))])
    return decode_library(_root().joinpath(name), source=f"library {name}")


def decode_library(directory: Traversable, *, source: str) -> Decoded[LibraryDoc]:
    """Return the library in *directory*; raises `ConfigInvalidError` with all problems.

    `templateFile: x.j2` beside library.yaml may stand for `template:`.
    """
    document = parse_document(directory.joinpath("library.yaml").read_text("utf-8"), source=source)
    problems = _inline_files(document, directory)
    try:
        decoded = decode_document(document, LibraryDoc)
    except ConfigInvalidError as exc:
        problems += [_explain_foreign_field(problem) for problem in exc.problems]
    else:
        problems += [_place(problem, decoded) for problem in check_defaults(decoded.value.settings)]
    if problems:
        raise ConfigInvalidError(problems)
    return msgspec.structs.replace(decoded, value=_with_defaults(decoded.value))


def _with_defaults(library: LibraryDoc) -> LibraryDoc:
    defaults = {name: setting.default for name, setting in flat_settings(library.settings).items()}
    context = merge_context(defaults, library.templating.extra_context)
    return msgspec.structs.replace(library, templating=LibraryTemplating(extra_context=context))


def _place(problem: Problem, decoded: Decoded[LibraryDoc]) -> Problem:
    place = next(decoded.places[path] for path in enclosing_paths(problem.path) if path in decoded.places)
    return msgspec.structs.replace(problem, source=decoded.source, line=place.line, column=place.column)


def merge(*libraries: LibraryDoc, user: Config) -> Config:
    """Return *user* over *libraries*, a later library over an earlier one.

    Entries of mappings are replaced whole; `templating.extraContext` is merged
    at every depth; everything else is the user's alone.
    """
    layers: list[LibraryDoc | Config] = [*libraries, user]
    main = [layer.haproxy_config for layer in layers if layer.haproxy_config is not None]
    context: dict[str, Any] = {}
    for layer in layers:
        context = merge_context(context, layer.templating.extra_context)
    return msgspec.structs.replace(
        user,
        templating=msgspec.structs.replace(user.templating, extra_context=context),
        watched_resources=_overlay(layer.watched_resources for layer in layers),
        template_snippets=_overlay(layer.template_snippets for layer in layers),
        maps=_overlay(layer.maps for layer in layers),
        files=_overlay(layer.files for layer in layers),
        ssl_certificates=_overlay(layer.ssl_certificates for layer in layers),
        crt_lists=_overlay(layer.crt_lists for layer in layers),
        haproxy_config=main[-1] if main else None,
        validation_tests=_overlay(layer.validation_tests for layer in layers),
    )


def merge_context(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return *upper* over *lower*: mappings on both sides are merged in turn, anything else is replaced."""
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = merge_context(below, value)
        else:
            merged[key] = value
    return merged


def _overlay(layers: Iterable[Mapping[str, V]]) -> dict[str, V]:
    return {name: entry for layer in layers for name, entry in layer.items()}


def _root() -> Traversable:
    return files("haptic_trio").joinpath("libraries")


def _explain_foreign_field(problem: Problem) -> Problem:
    if problem.message == UNKNOWN_FIELD and problem.path in _USERS_FIELDS:
        return msgspec.structs.replace(problem, hint="only the user's configuration can set this, not a library")
    return problem


def _inline_files(document: Document, directory: Traversable) -> list[Problem]:
    problems: list[Problem] = []
    for group, value in _mapping_items(document.root):
        if group == "haproxyConfig":
            problems += _inline_file(document, value, group, directory)
        elif group in _TEMPLATE_GROUPS:
            for name, entry in _mapping_items(value):
                problems += _inline_file(document, entry, key_path(group, name), directory)
    return problems


def _inline_file(document: Document, entry: Node, path: str, directory: Traversable) -> list[Problem]:
    """Put the file's text in place of its name, so that what follows sees only `template`."""
    names = [name for name, _ in _mapping_items(entry)]
    if not isinstance(entry, MappingNode) or "templateFile" not in names:
        return []
    problems = []
    for index, (key, value) in enumerate(entry.value):
        if not isinstance(key, ScalarNode) or key.value != "templateFile":
            continue
        text, message = _read_template(directory, value)
        if "template" in names:
            message = "`template` and `templateFile` exclude each other"
            del entry.value[index]
        else:
            entry.value[index] = (
                ScalarNode(key.tag, "template", key.start_mark, key.end_mark),
                ScalarNode(STR_TAG, text, value.start_mark, value.end_mark),
            )
        if message:
            problems.append(document.problem(value, f"{path}.templateFile", message))
        break
    return problems


def _read_template(directory: Traversable, name: Node) -> tuple[str, str]:
    """Return the text of the file and what is wrong; one of them is empty."""
    if not isinstance(name, ScalarNode) or not _FILE_NAME.fullmatch(name.value):
        return "", "expected the name of a file beside library.yaml"
    file = directory.joinpath(name.value)
    if not file.is_file():
        return "", f"there is no file {name.value!r} beside library.yaml"
    return file.read_text("utf-8"), ""


def _mapping_items(node: Node | None) -> list[tuple[str, Node]]:
    if not isinstance(node, MappingNode):
        return []
    return [(key.value, value) for key, value in node.value if isinstance(key, ScalarNode)]
