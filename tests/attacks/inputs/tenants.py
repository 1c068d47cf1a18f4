"""Tenants: their names, certificates and Secrets, and the objects that a cluster has once."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec
import trustme

from haptic_trio.k8s.resource import Resource
from tests.bad_inputs.world import HASH, secret
from tests.gateway.objects import gateway_class, made
from tests.support.kubernetes import ingress_class

VICTIM_HOSTS: Final = tuple(
    f"{name}.victim.test"
    for name in ("plain0", "nginx0", "main0", "org0", "jcm0", "https0", "more0", "redirect0", "inner.wild0")
)
BELOW_WILDCARDS: Final = tuple(f"{name}.victim.test" for name in ("other.wild0", "other.plain0", "other.redirect0"))
"""Hosts that the victim serves by its wildcards, and nobody names."""
WILDCARDS: Final = tuple(f"*.{name}victim.test" for name in ("wild0.", "plain0.", "redirect0.", "inner.wild0.", ""))
"""The victim's wildcards, and others around its hosts."""
NAMED_BELOW: Final = ("named.wild0.victim.test", "named.plain0.victim.test", "named.redirect0.victim.test")
"""Hosts below the victim's wildcards, which an attacker may have."""
AUTHORITY: Final = trustme.CA()


class Tenant(msgspec.Struct, frozen=True):
    """Whose copy of a sample it is."""

    namespace: str
    number: int
    age: int
    """The day on which its objects were created."""

    def name(self, base: str) -> str:
        """Return a name that no other copy has."""
        return f"{base}{self.number}"

    def host(self, base: str) -> str:
        """Return a host that no other copy has."""
        return f"{base}{self.number}.{self.namespace}.test"

    def port(self, offset: int) -> int:
        """Return a port that no other copy has."""
        return (10_000 if self.namespace == "victim" else 20_000) + 10 * self.number + offset

    def made(self, kind: str, base: str, **fields: Any) -> Resource:
        """Return an object of the Gateway API."""
        found = made(kind, self.name(base), **{"namespace": self.namespace, **fields})
        found["metadata"]["creationTimestamp"] = f"2026-01-{self.age:02}T00:00:00Z"
        return found


class Sample(msgspec.Struct, frozen=True):
    """Objects that belong together."""

    name: str
    build: Callable[[Tenant], list[Resource]]
    copies: int
    """So many in one configuration: as many as a busy machine renders and checks in a few seconds."""


@cache
def pair(namespace: str) -> tuple[str, str]:
    """Return the certificate and the key of a tenant; those of attackers hold the names of the victim."""
    names = [f"*.{namespace}.test", *((*VICTIM_HOSTS, *WILDCARDS[:-1]) if namespace != "victim" else ())]
    issued = AUTHORITY.issue_cert(*names, key_type=trustme.KeyType.ECDSA)
    return issued.cert_chain_pems[0].bytes().decode(), issued.private_key_pem.bytes().decode()


def authority_text() -> str:
    """Return the certificate of an authority."""
    return AUTHORITY.cert_pem.bytes().decode()


def cluster() -> list[Resource]:
    """Return what the administrator has made."""
    return [gateway_class(), ingress_class("haptic", "haptic-trio/ingress-controller")]


def secrets(namespace: str, users: str, hashes: str, authority: str) -> list[Resource]:
    """Return the Secrets that annotations name."""
    return [
        secret(users, {"auth": f"joe:{HASH}"}, namespace=namespace),
        secret(hashes, {"joe": HASH}, namespace=namespace),
        secret(authority, {"ca.crt": authority_text()}, namespace=namespace),
    ]
