"""Messages about bad values: each names the annotation that has the value, with its prefix."""

from collections.abc import Iterator

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.templating.field_paths import name_fields
from haptic_trio.templating.values.subjects import subject_of
from tests.libraries.ingress.test_annotations import ALL, BESIDE, VENDORS, annotated, rendered, secret

RUBBISH = '"\\{$(bad) (x'
CHECKED_ELSEWHERE = {
    # Any printable text.
    *("haptic/jwt-audience", "haptic/jwt-issuer"),
    "haproxyIngress/agent-check-send",
    "nginx/canary-by-header-value",
}
WITHOUT_EFFECT = {
    *("haproxyIngress/backend-server-naming", "haproxyIngress/backend-server-slots-increment"),
    *("haproxyIngress/dynamic-scaling", "haproxyIngress/slots-min-free"),
    *("haproxyOrg/scale-server-slots", "haproxyOrg/standalone-backend"),
    *("nginx/auth-cache-duration", "nginx/auth-cache-key", "nginx/auth-keepalive", "nginx/auth-keepalive-requests"),
    *("nginx/auth-keepalive-share-vars", "nginx/auth-keepalive-timeout", "nginx/client-body-buffer-size"),
    *("nginx/enable-rewrite-log", "nginx/http2-push-preload", "nginx/preserve-trailing-slash"),
    *("nginx/proxy-buffer-size", "nginx/proxy-buffering", "nginx/proxy-buffers-number"),
    *("nginx/proxy-busy-buffers-size", "nginx/proxy-http-version", "nginx/proxy-max-temp-file-size"),
    "nginx/proxy-request-buffering",
}
# Annotations that need others than those that most of them need.
MORE = {
    "haproxyIngress/secure-backends": {"backend-protocol": ""},
    "haproxyIngress/ssl-redirect-code": {"ssl-redirect": "true"},
    "haproxyOrg/ssl-redirect-code": {"ssl-redirect": "true"},
    "haproxyOrg/ssl-redirect-port": {"ssl-redirect": "true"},
    "nginx/auth-signin-redirect-param": {"auth-signin": "https://a.example.com/in"},
    "nginx/canary-by-header-pattern": {"canary-by-header": "X-C"},
    "nginx/satisfy": {"auth-url": ""},
}


def bad(value: str) -> Iterator[tuple[str, str, Resource]]:
    """Yield each annotation with its prefix, and an Ingress in which it alone has a bad *value*."""
    for number, (vendor, name) in enumerate(ALL):
        key = f"{vendor}/{name}"
        beside = {"canary": "true", "canary-weight": "5"} if name.startswith("canary") else BESIDE[vendor]
        beside = {other: text for other, text in (beside | MORE.get(key, {})).items() if text}
        yield key, VENDORS[vendor]["prefix"] + name, annotated(f"i{number}", vendor, {**beside, name: value})


def messages(*objects: Resource) -> dict[str, list[str]]:
    """Return the messages for the owners of *objects*: by subject, fields and messages."""
    found = dict[str, list[str]]()
    by_subject = {subject_of(one): one for one in objects}
    # Stick tables of a namespace are limited.
    rejections = [
        one for start in range(0, len(objects), 15) for one in rendered(*objects[start : start + 15]).rejections
    ]
    for rejection in rejections:
        problem = name_fields(by_subject[rejection.subject], rejection.problem)
        found.setdefault(str(rejection.subject), []).append(f"{problem.path}: {problem.message}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("value", [RUBBISH, "x y,z"])
def test_a_bad_value_of_any_annotation_is_reported_with_its_name(value: str) -> None:
    sites = list(bad(value))
    found = messages(*(site for _, _, site in sites))

    unnamed = {
        (full, text)
        for _, full, site in sites
        for text in found.get(f"Ingress default/{site['metadata']['name']}", [])
        if f'"{full}"' not in text
    }
    assert unnamed == set()
    if value == RUBBISH:
        accepted = {key for key, _, site in sites if f"Ingress default/{site['metadata']['name']}" not in found}
        assert accepted == CHECKED_ELSEWHERE | WITHOUT_EFFECT


@pytest.mark.slow
def test_an_empty_value_is_reported_with_the_name_of_its_annotation() -> None:
    sites = list(bad(""))
    found = messages(*(site for _, _, site in sites))

    texts = {full: found.get(f"Ingress default/{site['metadata']['name']}", []) for _, full, site in sites}
    assert [(full, text) for full, some in texts.items() for text in some if f'"{full}"' not in text] == []
    assert len([full for full, some in texts.items() if some]) > 100


@pytest.mark.parametrize(("vendor", "name"), [("nginx", "auth-secret"), ("haproxyIngress", "auth-secret")])
def test_an_unusable_password_file_is_reported_with_the_annotation_that_names_it(vendor: str, name: str) -> None:
    site = annotated("a", vendor, {**BESIDE[vendor], name: "bad"})
    objects = (site, secret("bad", "auth", b"joe:$apr1$x"))
    (rejection,) = rendered(*objects).rejections

    assert f'{VENDORS[vendor]["prefix"]}{name}"' in name_fields(site, rejection.problem).path


@pytest.mark.parametrize(
    ("vendor", "name", "alternative"),
    [
        ("nginx", "custom-http-errors", "the setting errorPages"),
        ("nginx", "custom-headers", "the setting responseHeaders"),
        ("nginx", "mirror-target", "RequestMirror"),
        ("nginx", "session-cookie-conditional-samesite-none", "session-cookie-samesite"),
        ("haproxyIngress", "http-header-match", "an HTTPRoute"),
        ("haproxyIngress", "http-header-match-regex", "an HTTPRoute"),
        ("haproxyIngress", "tls-alpn", "the setting alpn"),
    ],
)
def test_an_annotation_that_is_not_supported_is_reported_with_its_alternative(
    vendor: str, name: str, alternative: str
) -> None:
    (text,) = rendered(annotated("a", vendor, {name: "x"})).rejected.values()

    assert f"{VENDORS[vendor]['prefix']}{name} is not supported" in text
    assert alternative in text
