"""Libraries of annotations: documented as a whole, refused where unknown, and never a way for data to become syntax."""

import base64
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from haptic_trio.config.libraries import library_names, load_library
from haptic_trio.k8s.resource import Resource
from tests.support.kubernetes import ingress, meta, path, rule, service, tls_secret
from tests.support.rendering import Rendered, render

VENDORS = {
    name: entry
    for library in library_names()
    if library.endswith("-annotations")
    for name, entry in load_library(library).templating.extra_context["ingressAnnotations"].items()
}
LIBRARIES = ("base", "ssl", "ingress", *(name for name in library_names() if name.endswith("-annotations")))
DOCS = Path(__file__).parents[2] / "docs" / "annotations.md"
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
}
HOSTILE = [
    "x\n    http-request deny",
    "x\r\nbind :99",
    "a\u2028b",
    "a b",
    "a # b",
    "'",
    '"',
    "\\",
    "%[env(HOME)]",
    "100%",
    "${HOME}",
    "$(x)",
    "\0",
    "}",
    "{",
    "a if TRUE",
    "' if TRUE",
    "/a' '/b",
    "$1 %[src]",
    "10.0.0.0/8\n0.0.0.0/0",
    "true\nfalse",
    "https://a' } { always_true",
    "",
    " ",
]
PLAUSIBLE = [
    "X-A b",
    "/a/(.*) /\\1",
    "basic-auth",
    "301",
    "hdr(x)",
    "X-A %[src]\nX-B y",
    "true",
    "false",
    "1",
    "5s",
    "8m",
    "/x",
    "/$1",
    "basic",
    "cookie",
    "users",
    "10.0.0.0/8",
    "a.example.com",
]
TEXT = st.sampled_from(HOSTILE) | st.sampled_from(PLAUSIBLE) | st.text(max_size=12)
VALUES = TEXT | st.tuples(TEXT, TEXT).map("".join)


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


def shape(text: str) -> list[str]:
    """Return each line without what stands in strong quotes, where an inner quote is written as `'\\''`."""
    return [re.sub(r"'(?:[^']|'\\'')*'(?!\\)", "''", line) for line in text.splitlines()]


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_annotation_is_documented_and_none_else(vendor: str) -> None:
    prefix = VENDORS[vendor]["prefix"]
    section = DOCS.read_text("utf-8").split(f"## `{prefix}*`\n")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    documented = [name for row in rows for name in re.findall("`([^`]+)`", row)]

    assert sorted(documented) == sorted(VENDORS[vendor]["known"])


@pytest.mark.parametrize("vendor", VENDORS)
def test_an_annotation_that_nobody_knows_is_refused_unless_it_is_allowed(vendor: str) -> None:
    evil = annotated("evil", vendor, {"server-snippets": "http-request deny"})

    assert "server-snippets is not supported" in rendered(evil).refused["Ingress default/evil"]
    allowed = rendered(evil, ingressAnnotations={vendor: VENDORS[vendor] | {"allowed": ["server-snippets"]}})
    assert allowed.refused == {}
    assert "http-request deny\n" not in allowed.text


@pytest.mark.parametrize("vendor", VENDORS)
def test_an_ingress_without_annotations_of_ours_shares_its_backends(vendor: str) -> None:
    other = ingress("other", rule("o.example.com", path("/", "good")), annotations={"example.com/x": "y"})

    assert rendered(other).text == rendered().text


def test_a_canary_that_is_neither_is_refused_alone() -> None:
    neither = annotated("neither", "nginx", {"canary": "maybe"})
    canary = annotated("real", "nginx", {"canary": "true", "canary-weight": "5"})
    for other in (neither, canary):
        other["spec"]["rules"][0]["host"] = "good.example.com"

    assert list(rendered(neither, canary).refused) == ["Ingress default/neither"]


def test_an_ingress_with_annotations_of_two_libraries_is_refused() -> None:
    both = ingress(
        "both",
        rule("both.example.com", path("/", "good")),
        annotations={"nginx.ingress.kubernetes.io/limit-rps": "1", "haproxy.org/rate-limit-requests": "1"},
    )

    assert "more than one library" in rendered(both).refused["Ingress default/both"]


@pytest.mark.parametrize("vendor", VENDORS)
def test_what_the_property_asks_of_is_rendered_where_the_value_means_something(vendor: str) -> None:
    assert rendered(annotated("fine", vendor, BESIDE[vendor])).refused == {}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(ALL), VALUES)
@example(("nginx", "permanent-redirect"), "https://a' code 301\n    http-request deny")
def test_no_value_of_an_annotation_adds_a_directive(known: tuple[str, str], value: str) -> None:
    vendor, name = known
    beside = BESIDE[vendor]
    at = "/api(/|$)(.*)" if "rewrite-target" in beside else "/"
    result = rendered(annotated("evil", vendor, {**beside, name: value}, at=at))

    assert "backend default_good_80 from profile-http" in result.text
    if result.refused:
        assert list(result.refused) == ["Ingress default/evil"]
        assert "evil" not in result.text
        return
    written = shape(result.text)
    for line in written:
        words = line.split()
        assert not words or words[0] in VOCABULARY | basic(), line
        assert line.count("'") % 2 == 0, line
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", line), line
        # What stands outside of quotes is what templates wrote, and no expansion among it.
        assert line.strip().startswith("#") or not re.search(r"env\(|\$\{|\\$|#", line), line
        assert line.strip() not in ("http-request deny", "bind :99", "http-response deny"), line
    assert sum(line.startswith("backend ") for line in written) == 3 + ("backend clients::default_evil " in result.text)
    assert sum(line.strip().startswith("server ") for line in written) == 0
    for file, content in result.files.items():
        if file in {"maps/nginx-auth.map", "maps/haproxy-ingress-auth.map"}:
            assert all(
                re.fullmatch(r"[0-9a-zA-Z_.:-]+ [A-Za-z0-9%,|*@$:._~\[\]-]+|", line) for line in content.split("\n")
            )
        elif file.startswith("maps/") and ("-" in file and "path-" not in file and "tls-" not in file):
            assert all(re.fullmatch(r"[0-9a-zA-Z_.:/-]+ [0-9a-z]+|", line) for line in content.split("\n")), content


VOCABULARY = {
    *("global", "defaults", "frontend", "backend", "userlist", "user", "#", "bind", "mode", "option", "retries"),
    *(
        "balance",
        "timeout",
        "http-request",
        "http-response",
        "http-after-response",
        "use_backend",
        "default_backend",
        "cookie",
    ),
    *(
        "dynamic-cookie-key",
        "stick-table",
        "hash-type",
        "no",
        "hard-stop-after",
        "fd-hard-limit",
        "tune.ssl.default-dh-param",
    ),
    *("ssl-default-bind-ciphers", "ssl-default-bind-ciphersuites", "ssl-default-bind-options"),
    *(
        "ssl-default-server-options",
        "httpclient.timeout.connect",
        "httpclient.retries",
        "lua-load-per-thread",
        "tune.stick-counters",
    ),
}


@cache
def basic() -> frozenset[str]:
    """What is there without annotations."""
    return frozenset(line.split()[0] for line in rendered().text.splitlines() if line.strip())
