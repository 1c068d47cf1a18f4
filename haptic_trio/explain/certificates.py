"""Certificates: explanation of those for a server name, and the list of all by expiry."""

from collections.abc import Iterator
from typing import Final, TypeAlias

from haptic_trio.explain.answers import MOST_SHOWN, Certificate, CertificateAnswer, ServedCertificate
from haptic_trio.explain.base_maps import plain_host, wildcard_of
from haptic_trio.explain.site import Site, named_resource
from haptic_trio.explain.targets import UnknownTargetError
from haptic_trio.explain.why_not import ingresses_at, why_foreign
from haptic_trio.gateway.objects import items_of, text_of
from haptic_trio.haproxy.config.certificates import names_of, parse_crt_list
from haptic_trio.haproxy.config.expiry import expiry_of
from haptic_trio.haproxy.model import FileKind
from haptic_trio.templating.incremental.questions import Question

_MOST_NAMES: Final = 20

_Entry: TypeAlias = tuple[str, int, str, str, frozenset[str], frozenset[str]]


def explain_certificate(site: Site, given: str) -> CertificateAnswer:
    """Return the certificates for the server name *given*; raises `UnknownTargetError` if there is none."""
    name = plain_host(given)
    found = certificates_for(site, name)
    problems = site.problems_at(name)
    if not found and not problems:
        reasons = [*certificate_reasons(site, name), *(one for one in site.warnings_at(name) if "ertificate" in one)]
        raise UnknownTargetError(f"no certificate for {given!r} in any crt-list", hint="; ".join(reasons))
    asked: set[Question] = set()
    for certificate in found:
        maker = site.provenance.maker_of(certificate.line.path, certificate.line.line)
        asked.update(maker.asked if maker is not None else ())
    notes = ("the first one that the client can use is served",) if len(found) > 1 else ()
    return CertificateAnswer(
        name=name, certificates=found, depends_on=site.lookups(asked), notes=notes, problems=problems
    )


def certificate_reasons(site: Site, host: str) -> Iterator[str]:
    """Yield a sentence if an Ingress wants TLS for *host*, and no certificate is served for it."""
    if certificates_for(site, host):
        return
    for ingress in ingresses_at(site, host):
        if why_foreign(site, ingress):
            continue
        for tls in items_of(ingress, "spec", "tls"):
            if host in items_of(tls, "hosts"):
                name = text_of(tls, "secretName")
                secret = f" with the Secret {name}" if name else ""
                yield f"no certificate is served for the host, though {named_resource(ingress)} asks for TLS{secret}"
                return


def list_certificates(site: Site) -> tuple[ServedCertificate, ...]:
    """Return all certificates, those that expire first at the beginning; CPU-bound."""
    names: dict[str, dict[str, None]] = {}
    objects: dict[str, dict[str, None]] = {}
    for path, line, _text, certificate, _excluded, covered in _entries(site):
        names.setdefault(certificate, {}).update(dict.fromkeys(sorted(covered)))
        origin = site.texts[path].origin_of(line)
        if origin is not None:
            objects.setdefault(certificate, {})[str(origin.subject)] = None
    found = []
    for file in site.files.values():
        expires = expiry_of(file) if file.kind is FileKind.CERT else None
        if expires is not None:
            found.append(
                ServedCertificate(
                    path=str(file.path),
                    expires=expires,
                    names=tuple(map(str, names.get(file.path, ())))[:_MOST_NAMES],
                    objects=tuple(objects.get(file.path, ()))[:MOST_SHOWN],
                )
            )
    return tuple(sorted(found, key=lambda one: (one.expires, one.path)))


def server_names(site: Site) -> set[str]:
    """Return the names of all certificates, including wildcards."""
    return set(_by_name(site))


def certificates_for(site: Site, name: str) -> tuple[Certificate, ...]:
    """Return the certificates for *name*: those with the name, then wildcard certificates."""
    found = []
    wanted = tuple(dict.fromkeys((name, wildcard_of(name))))
    for rank, known in enumerate(wanted):
        for path, line, text, certificate, excluded, names in _by_name(site).get(known, ()):
            if rank and (name in names or name in excluded):
                continue
            origin = site.texts[path].origin_of(line)
            file = site.files.get(certificate)
            found.append(
                Certificate(
                    line=site.line(path, line, text, origin),
                    path=certificate,
                    digest=file.digest if file is not None else "",
                    names=tuple(sorted(names))[:_MOST_NAMES],
                    made_by=site.made_by(path, origin),
                    expires=expiry_of(file) if file is not None else None,
                )
            )
    return tuple(found)


def _by_name(site: Site) -> dict[str, list[_Entry]]:
    known: dict[str, list[_Entry]] | None = site.memo.get("certificates")
    if known is None:
        known = site.memo["certificates"] = {}
        for entry in _entries(site):
            for name in entry[-1]:
                known.setdefault(name, []).append(entry)
    return known


def _entries(site: Site) -> Iterator[_Entry]:
    """Yield all entries of crt-lists: path, line, text, certificate file, excluded names, names."""
    for file in site.files.values():
        if file.kind is not FileKind.CRT_LIST:
            continue
        for number, text in enumerate(site.lines_of(file.path), 1):
            for entry in parse_crt_list(text.encode(errors="surrogatepass")) or ():
                names = names_of(entry, site.files.get(entry.certificate))
                excluded = frozenset(word[1:].lower() for word in entry.filters if word[0] == "!")
                yield file.path, number, text, entry.certificate, excluded, names or frozenset()
