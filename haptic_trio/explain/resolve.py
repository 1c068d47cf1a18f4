"""Resolver from the text of a query to its explanation."""

import posixpath
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Final

import msgspec

from haptic_trio.explain.answers import Answer
from haptic_trio.explain.base_maps import EXACT, PREFIX, is_rejected, plain_host, scopes_of
from haptic_trio.explain.certificates import explain_certificate, server_names
from haptic_trio.explain.gateways import gateway_notes
from haptic_trio.explain.lines import (
    explain_file,
    explain_line,
    explain_section,
    sections_called,
    shown_sections,
    title_of,
)
from haptic_trio.explain.objects import explain_absent, explain_object, find_objects, is_kind, is_looked_for
from haptic_trio.explain.routes import entries_for, explain_host, explain_route, hosts_of, routing_of
from haptic_trio.explain.site import MAIN, Site
from haptic_trio.explain.targets import (
    AmbiguousTargetError,
    CertificateTarget,
    FileTarget,
    HostTarget,
    LineTarget,
    MalformedTargetError,
    NameTarget,
    ObjectTarget,
    SectionTarget,
    UnknownTargetError,
    as_line,
    as_request,
    parse_target,
)
from haptic_trio.explain.why_not import ingresses_at
from haptic_trio.gateway.reasons import routes_at
from haptic_trio.k8s.resource import Resource, ref_of

_MOST_SUGGESTIONS: Final = 5
_MOST_CANDIDATES: Final = 20
_LIKENESS: Final = 0.6


def explain(site: Site, target: str) -> Answer:
    """Return the explanation of *target*.

    Raises `MalformedTargetError`, `UnknownTargetError` or
    `AmbiguousTargetError`; the latter two suggest targets.
    """
    parsed = parse_target(target)
    match parsed:
        case LineTarget():
            answer = _explain_line(site, parsed)
        case FileTarget():
            answer = explain_file(site, _path(site, parsed.path))
        case SectionTarget():
            answer = _explain_section(site, parsed)
        case HostTarget():
            answer = _explain_request(site, parsed)
        case CertificateTarget():
            answer = _explain_certificate(site, parsed.name)
        case ObjectTarget():
            answer = _explain_object(site, parsed)
        case NameTarget():
            answer = _explain_name(site, parsed.text)
    return answer


def _explain_line(site: Site, target: LineTarget) -> Answer:
    if target.line < 1:
        raise MalformedTargetError("line numbers start at 1")
    return explain_line(site, _path(site, target.path), target.line)


def _explain_section(site: Site, target: SectionTarget) -> Answer:
    found = sections_called(site, target.name, target.kind)
    title = f"{target.kind} {target.name}".rstrip()
    if found:
        # Names are unique within a kind, except for `defaults` and `global`: the first one is explained.
        return explain_section(site, *found[0])
    if site.config is None:
        raise UnknownTargetError(
            f"{MAIN} cannot be parsed, so its sections are not known", hint=f"explain a line, such as {MAIN}:1"
        )
    raise UnknownTargetError(f"no section {title!r}", nearest(title, shown_sections(site).values()))


def _explain_request(site: Site, target: HostTarget) -> Answer:
    if target.path:
        return explain_route(site, target.host, target.path)
    answer = explain_host(site, target.host)
    if not (answer.entries or answer.certificates or answer.problems or answer.notes or answer.reasons):
        raise UnknownTargetError(f"no route for the host {answer.host!r}", nearest(answer.host, hosts_of(site)))
    return answer


def _explain_certificate(site: Site, name: str) -> Answer:
    path = _known_paths(site, name)
    if path and site.files[path[0]].kind == "cert":
        return explain_file(site, path[0])
    try:
        return explain_certificate(site, name)
    except UnknownTargetError as exc:
        near = nearest(plain_host(name), server_names(site))
        raise UnknownTargetError(exc.message, tuple(f"certificate {one}" for one in near), exc.hint) from exc


def _explain_object(site: Site, target: ObjectTarget) -> Answer:
    found = find_objects(site, target.kind, target.namespace, target.name)
    if len(found) == 1:
        return explain_object(site, found[0])
    if found:
        raise AmbiguousTargetError(f"{len(found)} objects are named {target.name!r}", _titles(found))
    namespace = target.namespace or ""
    if is_looked_for(site, target.kind, namespace, target.name):
        return explain_absent(site, target.kind, namespace, target.name)
    title = f"{target.kind} {target.namespace + '/' if target.namespace else ''}{target.name}"
    raise UnknownTargetError(f"no object {title!r}", *_near_objects(site, target))


def _near_objects(site: Site, target: ObjectTarget) -> tuple[tuple[str, ...], str]:
    """Return suggestions and a hint for an object that does not exist."""
    refs = {ref_of(resource) for store in site.stores.values() for resource in store.list()}
    of_kind = {ref for ref in refs if is_kind(target.kind, ref.kind)}
    if not of_kind:
        kinds = sorted({ref.kind for ref in refs})
        near = set(nearest(target.kind, kinds))
        meant = tuple(str(ref) for ref in sorted(refs) if ref.kind in near and ref.name == target.name)
        return meant, f"watched kinds with objects: {', '.join(kinds)}" if kinds else "no objects are watched"
    titles: dict[str, str] = {}
    for ref in sorted(of_kind):
        titles.setdefault(f"{ref.namespace}/{ref.name}" if target.namespace is not None else ref.name, str(ref))
    written = f"{target.namespace}/{target.name}" if target.namespace is not None else target.name
    return tuple(titles[one] for one in nearest(written, titles)), ""


def _explain_name(site: Site, text: str) -> Answer:
    line = as_line(text)
    if line is not None and _known_paths(site, line.path):
        return _explain_line(site, line)
    candidates = list(_candidates(site, text))
    if len(candidates) == 1:
        return candidates[0][1]()
    if candidates:
        titles = tuple(title for title, _ in candidates[:_MOST_CANDIDATES])
        raise AmbiguousTargetError(f"{text!r} is ambiguous ({len(candidates)} matches)", titles)
    request = as_request(text)
    # A target with a path is a request; requests for unknown hosts are explained, too.
    if _may_be_host(request.host) and (_has_catch_all(site) or (request.path and routing_of(site) is not None)):
        return _explain_stray(site, request)
    suggestions = _suggestions(site, text, line)
    hint = "" if suggestions else "`haptic-trio validate` says which objects are not served, and why"
    raise UnknownTargetError(f"nothing is named {text!r}", suggestions, hint)


def _explain_stray(site: Site, request: HostTarget) -> Answer:
    """Return the route of a request for a host without routes."""
    answer = explain_route(site, request.host, request.path or "/")
    is_known = answer.winner is not None or answer.reasons or any(visit.routes for visit in answer.gateways)
    near = () if is_known else nearest(answer.host, hosts_of(site))
    notes = [f"no route for the host; there are routes for {', '.join(near)}"] if near else []
    return msgspec.structs.replace(answer, notes=(*notes, *answer.notes))


def _candidates(site: Site, text: str) -> Iterator[tuple[str, Callable[[], Answer]]]:
    """Yield all meanings of *text*: the notation, and a function that explains it."""
    for path in _known_paths(site, text):
        yield f"file {path}", lambda path=path: explain_file(site, path)  # type: ignore[misc]
    for section, first in sections_called(site, text):
        yield title_of(section), lambda section=section, first=first: explain_section(site, section, first)  # type: ignore[misc]
    namespace, slash, name = text.partition("/")
    found = find_objects(site, "", namespace, name) if slash else find_objects(site, "", None, text)
    for resource in found:
        yield str(ref_of(resource)), lambda resource=resource: explain_object(site, resource)  # type: ignore[misc]
    request = as_request(text)
    host = plain_host(request.host)
    if host and _is_known_host(site, host):
        yield f"host {text}", lambda: _explain_request(site, request)
    elif host and not request.path and host in server_names(site):
        yield f"certificate {text}", lambda: explain_certificate(site, text)


def _is_known_host(site: Site, host: str) -> bool:
    """Whether *host* or its wildcard has a route or certificate, or a rejected object names it."""
    routing = routing_of(site)
    if routing is None:
        return False
    scopes = [scope for scope in (scopes_of(host) if "*" not in host else (host,)) if scope != "*"]
    is_written = any(entry.key.partition("|")[0] in scopes for _, entry in entries_for(routing, host))
    return (
        is_written
        or bool(site.problems_at(host))
        or any(gateway_notes(site, host))
        or bool(ingresses_at(site, host))
        or any(routes_at(site.stores, host, is_named=True))
    )


def _may_be_host(host: str) -> bool:
    return "." in plain_host(host) and not is_rejected(host) and plain_host(host) != MAIN


def _has_catch_all(site: Site) -> bool:
    routing = routing_of(site)
    return routing is not None and any(
        entry.key.startswith("*|") for name in (EXACT, PREFIX) for entry in routing.maps[name].entries
    )


def _known_paths(site: Site, given: str) -> list[str]:
    """Return the files that *given* matches: an exact path, the end of a path, or a longer path."""
    if given in site.texts:
        return [given]
    inside = [path for path in site.texts if given.endswith(f"/{path}")]
    if inside:
        return [max(inside, key=len)]
    return [path for path in site.texts if path.endswith(f"/{given}")]


def _path(site: Site, given: str) -> str:
    found = _known_paths(site, given)
    if not found:
        raise UnknownTargetError(f"no file {given!r}", _near_paths(site, given))
    if len(found) > 1:
        raise AmbiguousTargetError(f"{len(found)} files match {given!r}", tuple(found))
    return found[0]


def _near_paths(site: Site, given: str) -> tuple[str, ...]:
    by_name = {posixpath.basename(path): path for path in site.texts}
    names = nearest(posixpath.basename(given), by_name)
    return nearest(given, site.texts) or tuple(by_name[name] for name in names)


def _suggestions(site: Site, text: str, line: LineTarget | None) -> tuple[str, ...]:
    if line is not None and (near := _near_paths(site, line.path)):
        return tuple(f"{path}:{line.line}" for path in near)
    written: dict[str, str] = {path: f"file {path}" for path in site.texts}
    written |= shown_sections(site)
    for store in site.stores.values():
        for resource in store.list():
            ref = ref_of(resource)
            title = f"{ref.namespace}/{ref.name}" if "/" in text and ref.namespace else ref.name
            written[title] = str(ref)
    host = as_request(text)
    written |= {name: f"{name}{host.path}" for name in hosts_of(site)}
    near = nearest(text, written) or nearest(plain_host(host.host), written)
    return tuple(dict.fromkeys(written[name] for name in near))


def _titles(resources: list[Resource]) -> tuple[str, ...]:
    return tuple(str(ref_of(resource)) for resource in resources[:_MOST_CANDIDATES])


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the names in *known* that are most similar to *name*, the nearest first."""
    return tuple(get_close_matches(name, sorted(known), _MOST_SUGGESTIONS, _LIKENESS))
