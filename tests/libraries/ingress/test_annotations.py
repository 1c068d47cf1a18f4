"""Libraries of annotations: documented as a whole, rejected where unknown, and data never becomes syntax."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import trustme

from haptic_trio.config.libraries import library_names, load_library
from haptic_trio.k8s.resource import Resource
from tests.support.components.rendering import Rendered, render
from tests.support.kubernetes import ingress, meta, path, rule, service, tls_secret

VENDORS = {
    name: entry
    for library in library_names()
    if library.endswith("-annotations")
    for name, entry in load_library(library).templating.extra_context["ingressAnnotations"].items()
}
LIBRARIES = ("base", "ssl", "ingress", *(name for name in library_names() if name.endswith("-annotations")))
DOCS = Path(__file__).parents[3] / "docs" / "annotations.md"
ALL = [(vendor, name) for vendor, entry in VENDORS.items() for name in entry["known"]]

HASH = b"$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM."


def secret(name: str, key: str, value: bytes) -> Resource:
    data = {key: base64.b64encode(value).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta(name), "data": data}


USERS = (secret("users", "auth", b"joe:" + HASH), secret("hashes", "joe", HASH))
AUTHORITY = trustme.CA()
SITE = AUTHORITY.issue_cert("*.example.com")
CERTIFICATES = (
    secret("authority", "ca.crt", AUTHORITY.cert_pem.bytes()),
    tls_secret("site", SITE.cert_chain_pems[0].bytes(), SITE.private_key_pem.bytes()),
)
GOOD = (ingress("good", rule("good.example.com", path("/", "good"))), service("good"), *USERS, *CERTIFICATES)
# What must be there for an annotation to have a meaning.
BESIDE = {
    "nginx": {
        "auth-type": "basic",
        "auth-secret": "users",
        "enable-cors": "true",
        "affinity": "cookie",
        "backend-protocol": "HTTPS",
        "proxy-ssl-server-name": "on",
        "limit-rps": "1",
        "limit-rpm": "1",
        "permanent-redirect": "/",
        "temporal-redirect": "/",
        "rewrite-target": "/",
        "auth-url": "http://good.default.svc/",
        "auth-tls-secret": "authority",
    },
    "haproxyOrg": {
        "auth-type": "basic-auth",
        "auth-secret": "hashes",
        "cors-enable": "true",
        "check": "true",
        "rate-limit-requests": "1",
        "request-redirect": "a.example.com",
    },
    "haproxyIngress": {
        "affinity": "cookie",
        "agent-check-port": "9000",
        "auth-secret": "users",
        "backend-protocol": "h1-ssl",
        "cors-enable": "true",
        "hsts": "true",
        "limit-rps": "1",
        "redirect-from": "old.example.com",
        "redirect-to": "/",
        "auth-url": "svc://good:80/",
        "auth-tls-secret": "authority",
    },
    "haptic": {
        "api-key-secret": "hashes",
        "jwt-audience": "*",
        "jwt-issuer": "*",
        "jwt-secret": "absent",
        "outlier-errors": "10",
        "rate-limit": "5",
    },
}


def annotated(name: str, vendor: str, annotations: dict[str, Any], *, at: str = "/") -> Resource:
    prefix = VENDORS[vendor]["prefix"]
    return ingress(
        name,
        rule(f"{name}.example.com", path(at, "good")),
        annotations={prefix + key: value for key, value in annotations.items()},
        tls=[{"hosts": [f"{name}.example.com"], "secretName": "site"}],
    )


def rendered(*objects: Resource, **context: Any) -> Rendered:
    return render([*GOOD, *objects], libraries=LIBRARIES, **context)


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_annotation_is_documented_and_none_else(vendor: str) -> None:
    prefix = VENDORS[vendor]["prefix"]
    section = DOCS.read_text("utf-8").split(f"## `{prefix}*`\n")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    documented = [name for row in rows for name in re.findall("`([^`]+)`", row)]

    assert sorted(documented) == sorted(VENDORS[vendor]["known"])


@pytest.mark.parametrize("vendor", VENDORS)
def test_an_unknown_annotation_is_rejected_unless_it_is_allowed(vendor: str) -> None:
    evil = annotated("evil", vendor, {"server-snippets": "http-request deny"})

    assert "server-snippets is not supported" in rendered(evil).rejected["Ingress default/evil"]
    allowed = rendered(evil, ingressAnnotations={vendor: VENDORS[vendor] | {"allowed": ["server-snippets"]}})
    assert allowed.rejected == {}
    assert "http-request deny\n" not in allowed.text


@pytest.mark.parametrize("vendor", VENDORS)
def test_an_ingress_without_known_annotations_shares_its_backends(vendor: str) -> None:
    other = ingress("other", rule("o.example.com", path("/", "good")), annotations={"example.com/x": "y"})

    assert rendered(other).text == rendered().text


def test_a_canary_that_is_neither_is_rejected_alone() -> None:
    neither = annotated("neither", "nginx", {"canary": "maybe"})
    canary = annotated("real", "nginx", {"canary": "true", "canary-weight": "5"})
    for other in (neither, canary):
        other["spec"]["rules"][0]["host"] = "good.example.com"

    assert list(rendered(neither, canary).rejected) == ["Ingress default/neither"]


def test_an_ingress_with_annotations_of_two_libraries_is_rejected() -> None:
    both = ingress(
        "both",
        rule("both.example.com", path("/", "good")),
        annotations={"nginx.ingress.kubernetes.io/limit-rps": "1", "haproxy.org/rate-limit-requests": "1"},
    )

    assert "more than one annotation library" in rendered(both).rejected["Ingress default/both"]


@pytest.mark.parametrize("vendor", VENDORS)
def test_annotations_that_others_need_are_rendered_together(vendor: str) -> None:
    assert rendered(annotated("fine", vendor, BESIDE[vendor])).rejected == {}
