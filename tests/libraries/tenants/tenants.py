"""Objects of two namespaces that want the same: one that is older, and one of an attacker."""

from typing import Any

import trustme

from haptic_trio.k8s.resource import Resource
from tests.support.kubernetes import ingress, path, rule, tls_secret

ALL = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-ingress-annotations", "haproxy-org-annotations")
NGINX, HI = "nginx.ingress.kubernetes.io/", "haproxy-ingress.github.io/"
HOST, WILDCARD = "shop.example.com", "*.example.com"
EC, RSA = trustme.KeyType.ECDSA, trustme.KeyType.RSA
VICTIM, EVIL, REST = (trustme.CA(organization_name=name) for name in ("victim", "evil", "rest"))
CLIENTS, OTHERS = trustme.CA(), trustme.CA()


def secret(
    namespace: str, name: str, *names: str, by: trustme.CA, age: int = 1, kind: trustme.KeyType = EC
) -> Resource:
    issued = by.issue_cert(*names, key_type=kind)
    return tls_secret(
        name, issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes(), namespace=namespace, age=age
    )


def victim(*rules: dict[str, Any], age: int = 1, name: str = "shop", **more: Any) -> Resource:
    return ingress(name, *rules, namespace="victim", age=age, **more)


def evil(*rules: dict[str, Any], age: int = 21, name: str = "evil", **more: Any) -> Resource:
    return ingress(name, *rules, namespace="attacker", age=age, **more)


def secured(*hosts: str, name: str = "tls") -> list[dict[str, Any]]:
    return [{"hosts": list(hosts), "secretName": name}]


SHOP = victim(rule(HOST, path("/", "web")), tls=secured(HOST))
SHOP_TLS = secret("victim", "tls", HOST, by=VICTIM, age=5)
REST_TLS = secret("certs", "rest", "rest.example.org", by=REST)
