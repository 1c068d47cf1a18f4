"""Functions of templates, such as `fail`, `warn`, `snippets`, `ident`, `paths` and `files`."""

import fnmatch
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from haptic_trio.gateway.routes.functions import GatewayFunctions
from haptic_trio.ingress.functions import IngressFunctions
from haptic_trio.templating.filters.content import ident
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.service_ports import service_port
from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.templating.object_warnings import warn
from haptic_trio.templating.placeholder import placeholder_certificate
from haptic_trio.templating.state import TemplateCollection, TemplateCycler, TemplateJoiner, TemplateNamespace
from haptic_trio.templating.values.faults import NamedFaultError, TemplateFaultError
from haptic_trio.templating.values.limits import limited_range
from haptic_trio.templating.values.marks import read_marks
from haptic_trio.templating.values.paths import FileKind, RenderedFile, is_safe_name
from haptic_trio.templating.values.subjects import RenderedText, size_of
from haptic_trio.templating.values.text import Emitted


class FailError(TemplateFaultError):
    """A template called `fail()`; trying again helps after the object or the template has changed."""


def fail(message: str) -> NoReturn:
    """Reject the fragment's object with *message*; outside of fragments, fail the whole render."""
    raise FailError(str(message))


def rejected() -> bool:
    """Whether the fragment's object is rejected and has no fallback.

    If so, the text of the fragment is output after the texts of other
    objects of the `{% each %}`: a map of routes, for example, can close the
    routes of the object. An inner `{% fragment %}` that fails outputs nothing.
    """
    return current_recorder().is_rejected()


def guarded(by: str, *otherwise: str) -> Emitted:
    """Declare that access to the output of the fragment is guarded *by* something such as `password`; returns no text.

    If the object is rejected later, no former version without this guard is
    served, unless that has one of the guards *otherwise*. Call it before
    anything that can fail.
    """
    current_recorder().guard(str(by), *map(str, otherwise))
    return Emitted("")


def permitted_by(setting: str, value: Any) -> Emitted:
    """Declare that *setting*, a variable with this *value*, permits the output of the fragment; returns no text.

    If the object is rejected after the setting has changed, no version from
    before is served. Outside of fragments it has no effect.
    """
    current_recorder().permit(str(setting), value)
    return Emitted("")


class PathFunctions:
    """`paths`: where an auxiliary file is, whether or not it is registered."""

    __slots__ = ()

    def map(self, name: str) -> Emitted:
        """Return the path of the map *name*."""
        return _path(FileKind.MAP, name)

    def cert(self, name: str) -> Emitted:
        """Return the path of the certificate bundle *name*."""
        return _path(FileKind.CERT, name)

    def crt_list(self, name: str) -> Emitted:
        """Return the path of the crt-list *name*."""
        return _path(FileKind.CRT_LIST, name)

    def file(self, name: str) -> Emitted:
        """Return the path of the general file *name*."""
        return _path(FileKind.GENERAL, name)


class FileFunctions:
    """`files`: register a file while rendering; each returns the file's path.

    Maps, certificates and crt-lists take trusted text only (what an emitter,
    a macro or a set block returned), since HAProxy reads them as configuration;
    a general file takes any text.
    """

    __slots__ = ()

    def map(self, name: str, content: str) -> Emitted:
        """Register a map file."""
        return _register(FileKind.MAP, name, content)

    def cert(self, name: str, content: str, lines: int = 1, of: Any = None) -> Emitted:
        """Register a certificate bundle: `files.cert(name, data | pem)`. Call it for each line that refers to the file.

        *lines*: how many lines that line counts as against
        `templating.maxNamespaceCertificateLines`.

        *of*: the object that the content is from, such as a Secret, if only
        its content can have this name. Then the last good version of another
        object that uses the file has the present content, not its former one.
        """
        return _register(FileKind.CERT, name, content, lines, of)

    def crt_list(self, name: str, content: str) -> Emitted:
        """Register a crt-list."""
        return _register(FileKind.CRT_LIST, name, content)

    def file(self, name: str, content: str, of: Any = None) -> Emitted:
        """Register a general file, such as an error page; *of* as for `cert`."""
        return _register(FileKind.GENERAL, name, content, of=of)

    def claim(self, name: str) -> Emitted:
        """Claim *name*, such as a port, for the fragment's object; returns no text, and writes no file.

        If several objects claim it, the oldest one has it, as if it were a file
        with different contents: others are rejected, and no former version of
        them is served that has claimed it. Outside of fragments, a claim is the
        administrator's, and has precedence.
        """
        run = current_recorder()
        key = run.fragment[0] if run.fragment else None
        owner = f"{key.kind} {key.namespace}/{key.name}" if key is not None else ""
        file = RenderedFile(FileKind.CLAIM, str(name), f"claim:{name}", RenderedText.of(owner))
        if run.want_file(file):
            run.register(file)
        return Emitted("")

    def has_entries(self, output: str) -> bool:
        """Whether the output *output*, such as `crt-lists/all.list`, has lines that are neither blank nor comments.

        A fragment that asks renders again when the answer changes, not
        whenever the output does.
        """
        return _has_entries(output)


def _path(kind: FileKind, name: object) -> Emitted:
    if not isinstance(name, str) or not is_safe_name(name):
        raise EmitError(
            f"the {kind} file's name is not a safe file name",
            "1 to 200 letters, digits and _ . : + = -, beginning with a letter, digit or _",
        )
    return Emitted(f"{current_recorder().paths.directory(kind)}/{name}")


def _register(kind: FileKind, name: str, content: str, lines: int = 1, of: Any = None) -> Emitted:
    path = _path(kind, name)
    if not isinstance(content, str):
        raise EmitError(f"the content of {path} is a {type(content).__name__}, not text")
    trusted = type(content) is Emitted
    if not trusted and kind is not FileKind.GENERAL:
        raise EmitError(
            f"the content of {path} is untrusted text",
            "build it with {% set content %}…{% endset %} and emitters, or | pem",
        )
    run = current_recorder()
    if run.importing:
        raise TemplateFaultError(
            f"an imported template registers the file {path}", "include the template, or import it with context"
        )
    run.trace.costs.add_file(kind, content, lines)
    text = read_marks(content, run.origins) if trusted else RenderedText.of(content)
    file = RenderedFile(kind, str(name), str(path), text, _source_of(of))
    if run.want_file(file):
        run.write(size_of(text.text))
        run.register(file)
    return path


def _source_of(resource: Any) -> tuple[str, str, str] | None:
    metadata = resource.get("metadata") if isinstance(resource, Mapping) else None
    if not isinstance(metadata, Mapping):
        return None
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or ""), str(resource.get("kind") or "")


def _has_entries(output: str) -> bool:
    found = current_recorder().has_entries(str(output))
    if found is None:
        raise NamedFaultError(
            f"no earlier output is named {str(output)!r}",
            "such as 'maps/host.map' or 'crt-lists/all.list'; haproxy.cfg is rendered last",
        )
    return found


def make_snippets(priorities: Mapping[str, int]) -> Callable[[str], list[Emitted]]:
    """Return the function `snippets(pattern)`: names that match, by priority, then by name."""
    ordered = sorted(priorities, key=lambda name: (priorities[name], name))

    @lru_cache(maxsize=256)
    def matching(pattern: str) -> tuple[Emitted, ...]:
        return tuple(Emitted(name) for name in ordered if fnmatch.fnmatchcase(name, pattern))

    def snippets(pattern: str) -> list[Emitted]:
        return list(matching(str(pattern)))

    return snippets


GLOBALS: Mapping[str, Any] = {
    "collect": TemplateCollection,
    "cycler": TemplateCycler,
    "fail": fail,
    "files": FileFunctions(),
    "gateway_api": GatewayFunctions(),
    "guarded": guarded,
    "ident": ident,
    "ingress_api": IngressFunctions(),
    "joiner": TemplateJoiner,
    "namespace": TemplateNamespace,
    "paths": PathFunctions(),
    "permitted_by": permitted_by,
    "placeholder_certificate": placeholder_certificate,
    "range": limited_range,
    "rejected": rejected,
    "warn": warn,
    "service_port": service_port,
}
