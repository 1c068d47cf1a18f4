"""Functions of templates for Ingresses: `ingress_api.handles(…)`, `ingress_api.view(…)`. Lookups are recorded."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from haptic_trio.gateway.objects import Lookups, Resource, namespace_of
from haptic_trio.ingress.certificates import Certificates, Line, SecretLines
from haptic_trio.ingress.classes import OwnClasses, class_of
from haptic_trio.ingress.gaps import Gap, gaps_of
from haptic_trio.ingress.guards import places_of
from haptic_trio.ingress.owners import STORE
from haptic_trio.ingress.served import (
    ANY,
    Vendors,
    age_of,
    has_too_many_aliases,
    normal_host,
    normal_path,
    served_by,
    unused_certificates,
)

SHARED: Final = "shared"
_MOST_VENDORS: Final = 64
_vendors: dict[int, tuple[Any, Vendors]] = {}


class Note(msgspec.Struct, frozen=True):
    """A warning to the owner of an Ingress."""

    reason: str
    message: str


class IngressView:
    """The hosts, paths and certificates that an Ingress owns; for the template that renders it."""

    def __init__(
        self, ingress: Resource, lookups: Lookups, own: OwnClasses, vendors: Vendors, policy: tuple[str, frozenset[str]]
    ) -> None:
        self._identity = ingress, own, vendors, policy
        self._ingress = ingress
        self._namespace = namespace_of(ingress)
        self._lookups = lookups
        self._own = own
        self._vendors = vendors
        self._ownership, self._catch_all = policy
        self._certificates = Certificates(lookups, own, vendors, self._catch_all)

    def has(self, host: Any, path: Any) -> bool:
        """Whether the Ingress has *path* of *host*, empty for every host."""
        name = normal_host(str(host or "")) or ANY
        if not self._may_have(name):
            return False
        # Of a host that belongs to one namespace, others have no path, however old they are.
        owners = self._certificates.owners_of(name)
        return self._ownership != SHARED or owners.has_path(self._namespace, normal_path(str(path or "")))

    def is_served(self) -> bool:
        """Whether the Ingress is of a class that is served; a former version is used only as long."""
        return self._as_long_as(_Has(self._identity, "has_class", ()))

    def has_class(self) -> bool:
        """Whether `is_served` is true at present."""
        return self._own.handles(class_of(self._ingress), self._lookups)

    def has_exact(self, host: Any, path: Any) -> bool:
        """Whether the Ingress has *path* of *host* as a whole; a former version of it has that only as long."""
        return self._as_long_as(_Has(self._identity, "has", (host, path)))

    def has_host(self, host: Any) -> bool:
        """Whether *host* belongs to the namespace of the Ingress; a former version has it only as long."""
        return self._as_long_as(_Has(self._identity, "owns", (host,)))

    def owns(self, host: Any) -> bool:
        """Whether `has_host` is true at present."""
        return self._certificates.owners_of(normal_host(str(host))).has_host(self._namespace)

    def has_connections(self, host: Any) -> bool:
        """Whether connections for *host* may go to the Ingress as they are: no older one has requests for it.

        A former version gets them only as long.
        """
        return self._as_long_as(_Has(self._identity, "may_connect", (host,)))

    def may_connect(self, host: Any) -> bool:
        """Whether `has_connections` is true at present."""
        owners = self._certificates.owners_of(normal_host(str(host)))
        return owners.has_host(self._namespace) and (owners.requests is None or owners.requests > age_of(self._ingress))

    def excluded(self, host: Any) -> tuple[str, ...] | None:
        """Return the hosts that *host*, if it is a wildcard, does not stand for; None if they are too many to list."""
        name = normal_host(str(host))
        return self._certificates.excluded(name, age_of(self._ingress)) if name.startswith("*.") else ()

    def left_out(self) -> Iterator[tuple[Resource, str]]:
        """Yield messages about namespaces with more hosts than the wildcards of the Ingress can exclude.

        Each has an Ingress of that namespace, as far as it takes to name it.
        """
        age = age_of(self._ingress)
        for host, secrets in served_by(self._ingress, self._vendors).certificates.items():
            if not secrets or not host.startswith("*.") or not self.owns(host):
                continue
            for one in self._certificates.exclusions(host, age).left_out:
                namespace, name = one.claimant
                message = (
                    f"{one.number} hosts of this namespace are too many to be excluded from {host} of the younger"
                    f" Ingress {'/'.join(age[1:])}; clients may get its certificate and its redirects"
                )
                yield {"kind": "Ingress", "metadata": {"namespace": namespace, "name": name}}, message

    def asks_clients(self, host: Any) -> bool:
        """Whether the Ingress decides by which authorities clients of *host* are verified."""
        return self._certificates.asks(self._ingress, normal_host(str(host)))

    def client_lines(self) -> list[tuple[str, Line]]:
        """Return names of Secrets, each with a crt-list line, for hosts whose clients the Ingress asks.

        A former version asks clients of its hosts only as long as the Ingress decides about that.
        """
        found = self._certificates.client_lines(self._ingress)
        for host in {host for _, line in found for host in line.hosts}:
            self._as_long_as(_Has(self._identity, "asks_clients", (host,)))
        return found

    def gaps(self) -> list[Gap]:
        """Return the hosts, each of which the Ingress is the oldest of, with paths that others must not serve."""
        served = served_by(self._ingress, self._vendors)
        is_open = bool(self._catch_all)
        return gaps_of(served, self._lookups, self._own, self._vendors, is_open_to_catch_all=is_open)

    def notes(self) -> list[Note]:
        """Return warnings to the owner about hosts, paths and certificates that other Ingresses have, too."""
        return [*self._route_notes(), *self._certificate_notes()]

    def _as_long_as(self, condition: "_Has") -> bool:
        holds = bool(getattr(self, condition.method)(*condition.arguments))
        if holds:
            self._lookups[STORE].rely(condition)
        return holds

    def _may_have(self, host: str) -> bool:
        if self._is_unlisted(host):
            return False
        return self._ownership == SHARED or self._certificates.owners_of(host).has_host(self._namespace)

    def _is_unlisted(self, host: str) -> bool:
        return host == ANY and bool(self._catch_all) and self._namespace not in self._catch_all

    def _route_notes(self) -> Iterator[Note]:
        own = age_of(self._ingress)[1:]
        for host, paths in served_by(self._ingress, self._vendors).routes.items():
            owners, named = self._certificates.owners_of(host), _named(host)
            others = [str(first) for first in owners.firsts if first.namespace != self._namespace]
            if self._is_unlisted(host):
                yield Note(
                    "HostTaken", "only namespaces in the setting catchAllNamespaces may have rules for every host"
                )
            elif not self._may_have(host):
                yield Note(
                    "HostTaken",
                    f"{named} belongs to the namespace of the Ingress {owners.firsts[0]}, the oldest that serves it"
                    " (setting hostOwnership); this Ingress serves nothing of it",
                )
            elif others and self._ownership != SHARED:
                yield Note("HostWanted", f"other namespaces have rules for {named}, too: {_listed('Ingress', others)}")
            elif others:
                yield Note("HostShared", f"other namespaces have paths of {named}, too: {_listed('Ingress', others)}")
                for path in sorted(paths & owners.contests.keys()):
                    contest, text = owners.contests[path], path or "/"
                    if contest.holder.namespace != self._namespace:
                        yield Note(
                            "PathTaken",
                            f"the path {text} of {named} belongs to the older Ingress {contest.holder} of another"
                            " namespace; this Ingress does not serve it",
                        )
                    elif contest.holder == own:
                        yield Note(
                            "PathWanted",
                            f"the Ingress {contest.rival} of another namespace has the path {text} of {named}, too;"
                            " this Ingress is older and serves it",
                        )

    def _certificate_notes(self) -> Iterator[Note]:
        served, own = served_by(self._ingress, self._vendors), age_of(self._ingress)[1:]
        if reason := unused_certificates(self._ingress, served):
            yield Note("CertificateNotServed", f"spec.tls: {reason}")
        for host, secrets in served.certificates.items():
            known, chosen = self._certificates.owners_of(host).tls, self._certificates.choice(host)
            if known.owner is not None and known.owner.namespace != self._namespace:
                yield Note(
                    "CertificateTaken",
                    f"spec.tls: {host} belongs to the namespace of the Ingress {known.owner}, the oldest that serves"
                    " it; the certificate of this Ingress is not used for it",
                )
            elif chosen is not None and secrets and chosen.claimant != own and set(secrets).isdisjoint(chosen.secrets):
                yield Note(
                    "CertificateTaken",
                    f"spec.tls: the older Ingress {chosen.claimant} provides the certificate for {host}",
                )
            elif chosen is not None and chosen.claimant == own and known.rival not in (None, own):
                yield Note(
                    "CertificateWanted",
                    f"spec.tls: the Ingress {known.rival} names another certificate for {host}; the certificate of"
                    " this Ingress is used",
                )
            elif host.startswith("*.") and secrets and self.excluded(host) is None:
                yield Note(
                    "CertificateNotServed",
                    f"spec.tls: no certificate is served for {host}, since too many hosts that it covers belong to"
                    " older Ingresses of other namespaces",
                )
        for host in served.routes if served.clients else ():
            known = self._certificates.owners_of(host).tls
            if self._certificates.asks(self._ingress, host):
                if (
                    host.startswith("*.")
                    and self._certificates.excluded_from_asking(host, age_of(self._ingress)) is None
                ):
                    yield Note(
                        "ClientsNotAsked",
                        f"clients of {host} are not asked for certificates, since too many hosts that it covers verify"
                        " theirs with other CA certificates; requests get 403",
                    )
            elif known.clients == own and (wide := self._certificates.covering(host, self._namespace)) is not None:
                yield Note(
                    "ClientsNotAsked",
                    f"clients of {host} are not asked for certificates, since too many hosts are below a wildcard whose"
                    f" clients the older Ingress {'/'.join(wide[1:])} verifies with other CA certificates; requests are"
                    " rejected",
                )
            elif host != ANY and known.owner is not None:
                yield Note(
                    "ClientsNotAsked",
                    f"the Ingress {known.clients or known.owner} decides how clients of {host} are verified; this"
                    " Ingress serves no request of a client that was verified with other CA certificates",
                )


class _Has(msgspec.Struct, frozen=True):
    """A condition for a former version of an Ingress: that a method of its view returns true."""

    identity: tuple[Resource, OwnClasses, Vendors, tuple[str, frozenset[str]]]
    method: str
    arguments: tuple[Any, ...]

    def __call__(self, lookups: Lookups, text: str) -> str | None:
        ingress, own, vendors, policy = self.identity
        holds = getattr(IngressView(ingress, lookups, own, vendors, policy), self.method)(*self.arguments)
        return text if holds else None


class _Serves(msgspec.Struct, frozen=True):
    """A condition for a former version of a Secret: that none of *hosts* belongs to others, or has another one."""

    secret: Resource
    hosts: frozenset[str]
    own: OwnClasses
    vendors: Vendors

    def __call__(self, lookups: Lookups, text: str) -> str | None:
        certificates, namespace = Certificates(lookups, self.own, self.vendors), namespace_of(self.secret)
        served = {host for line in certificates.lines(self.secret).lines for host in line.hosts}
        are_free = all(
            certificates.owners_of(host).has_host(namespace) and certificates.choice(host) is None
            for host in self.hosts - served
        )
        return text if are_free else None


class IngressFunctions:
    """The template namespace `ingress_api`: selection of Ingresses, and ownership of hosts."""

    __slots__ = ()

    def handles(self, ingress: Resource, resources: Lookups, name: Any, controller: Any, without: Any) -> bool:
        """Whether *ingress* is served: of the class *name*, of one of *controller*, or of none where that is wanted."""
        return _classes(name, controller, without).handles(class_of(ingress), resources)

    def view(
        self,
        ingress: Resource,
        resources: Lookups,
        classes: list[Any],
        annotations: Mapping[str, Any],
        policy: list[Any],
    ) -> IngressView:
        """Return the view of *ingress*. *classes* are the arguments of `handles`; *policy* sets host ownership."""
        ownership, catch_all = policy
        return IngressView(
            ingress, resources, _classes(*classes), _vendors_of(annotations), (str(ownership), _texts(catch_all))
        )

    def has_too_many_aliases(self, ingress: Resource, name: Any) -> bool:
        """Whether the hosts in the annotation *name* and the paths of *ingress* are too many; then no alias counts."""
        return has_too_many_aliases(ingress, str(name))

    def places(self, ingress: Resource, annotations: Mapping[str, Any]) -> list[list[str]]:
        """Return arguments for `guarded`: each path of *ingress*, with the prefixes that cover it."""
        return list(places_of(served_by(ingress, _vendors_of(annotations))))

    def certificate_lines(
        self, secret: Resource, resources: Lookups, classes: list[Any], annotations: Mapping[str, Any]
    ) -> SecretLines:
        """Return the lines of the crt-list for *secret*, and who names it."""
        own, vendors = _classes(*classes), _vendors_of(annotations)
        found = Certificates(resources, own, vendors).lines(secret)
        if found.lines:
            hosts = frozenset(host for line in found.lines for host in line.hosts)
            resources["tlsSecrets"].rely(_Serves(secret, hosts, own, vendors))
        return found

    def default_lines(
        self, secret: Resource, resources: Lookups, classes: list[Any], annotations: Mapping[str, Any]
    ) -> list[Line]:
        """Return the lines of the crt-list for *secret*, a default certificate."""
        return Certificates(resources, _classes(*classes), _vendors_of(annotations)).default_lines(secret)


def _classes(name: Any, controller: Any, without: Any) -> OwnClasses:
    return OwnClasses(str(name), str(controller), bool(without))


def _vendors_of(annotations: Mapping[str, Any]) -> Vendors:
    """Return the vendors in *annotations*; the same mapping gives the same object, by which answers are cached."""
    known = _vendors.get(id(annotations))
    if known is not None and known[0] is annotations:
        return known[1]
    if len(_vendors) >= _MOST_VENDORS:
        _vendors.clear()
    found = Vendors(annotations)
    _vendors[id(annotations)] = annotations, found
    return found


def _texts(values: Iterable[Any]) -> frozenset[str]:
    return frozenset(map(str, values))


def _named(host: str) -> str:
    return "every host" if host == ANY else f"the host {host}"


def _listed(kind: str, names: list[str]) -> str:
    return f"{kind} {', '.join(names[:3])}"
