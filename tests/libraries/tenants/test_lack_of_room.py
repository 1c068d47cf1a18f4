"""Ingresses that find room in their namespace one by one, but not all together."""

import trustme

from haptic_trio.k8s.resource import Resource
from tests.libraries.tenants.test_certificate_lines import secret_of_authorities, secrets
from tests.support.components.succession import Succession
from tests.support.kubernetes import ingress, ingress_class, path, rule, service

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations")
AUTH_TLS = {"nginx.ingress.kubernetes.io/auth-tls-secret": "attacker/ca"}
AUTHORITIES = "".join(trustme.CA().cert_pem.bytes().decode() for _ in range(80))


class Changes:
    """Ingresses of the attacker with a list of authorities each, and changes of another namespace."""

    def __init__(self, number: int, limit: int) -> None:
        self._succession = Succession(LIBRARIES, limits={"max_namespace_certificate_lines": limit})
        self._changes = 0
        objects = [service("app", namespace=namespace) for namespace in ("attacker", "victim")]
        self._succession.render(
            ingress_class("haptic", "haptic-trio/ingress-controller"),
            *objects,
            secret_of_authorities(AUTHORITIES),
            *secrets(1),
        )
        self._succession.render(*(self._asking(f"e{one}") for one in range(number)))

    @staticmethod
    def _asking(name: str) -> Resource:
        host = f"{name}.test"
        tls = [{"hosts": [host], "secretName": "c0"}]
        return ingress(name, rule(host, path("/", "app")), namespace="attacker", tls=tls, annotations=AUTH_TLS)

    def make(self) -> tuple[int, int]:
        """Add an Ingress of another namespace; return how many fragments render, and how many objects are rejected."""
        self._changes += 1
        name = f"v{self._changes}"
        found = self._succession.render(ingress(name, rule(f"{name}.test", path("/", "app")), namespace="victim"))
        return found.fragments_rendered, len({str(rejection.subject) for rejection in found.rejections})


def test_objects_that_find_no_room_together_are_tried_one_by_one() -> None:
    alone, rejected = Changes(3, limit=10_000).make()
    assert rejected == 0

    changes = Changes(30, limit=100)
    found = [changes.make() for _ in range(45)]
    # Of all of them, 892 fragments were rendered for each change.
    assert max(cost for cost, _ in found) < 150
    assert found[-1] == (alone, 26), "those that fit are served, and the others are not tried again"
