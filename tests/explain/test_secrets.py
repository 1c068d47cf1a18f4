"""Explanations show a hash in place of content that derives from a Secret."""

import base64

import msgspec
import pytest

from haptic_trio.explain.answers import FileAnswer, LineAnswer, to_json
from haptic_trio.explain.resolve import explain
from haptic_trio.explain.site import Site, shown_text
from haptic_trio.explain.targets import UnknownTargetError
from haptic_trio.k8s.resource import Resource
from tests.explain.sites import Workshop, number_of, secret, site_of
from tests.support.kubernetes import ingress, meta, path, rule, service

PASSWORD = "correct-horse-battery"
HASH = "$5$abcdefgh$gruCpC7V3CGcYgBL6a8E6y2wYx6TcGkDDCTfXbBBBB."
USERS = """\
userlist staff
{% for secret in resources.tlsSecrets.list() %}
{% fragment "user" for secret %}
    user {{ ident(secret.metadata.name) }} insecure-password {{ ident(secret.data.password | b64decode) }}
{% endfragment %}
{% endfor %}
"""
NAMED = """\
{% each secret in resources.tlsSecrets %}
userlist {{ ident(secret.data.password | b64decode) }}
{% endeach %}
"""
BORROWED = """\
{% each ingress in resources.ingresses %}
    # {{ ident((resources.tlsSecrets.list() | first).data.password | b64decode) }}
{% endeach %}
"""
HANDED_DOWN = """\
{% set password = (resources.tlsSecrets.list() | first).data.password | b64decode %}
{% each ingress in resources.ingresses %}
    # {{ ident(password) }}
{% endeach %}
"""
BARE = "    # {{ ident((resources.tlsSecrets.list() | first).data.password | b64decode) }}\n"
TARGETS = (
    "Secret tls",
    "Ingress i",
    "Service web",
    "global",
    "userlist staff",
    "defaults profile-http",
    "frontend http",
    "a.example.com",
    "a.example.com/x",
    "certificate a.example.com",
    "file ssl/default_tls.pem",
    "haproxy.cfg",
    "ssl/https.list",
    "maps/path-prefix.map",
)


def site_with(**snippets: str) -> Site:
    holder = secret("tls", "a.example.com")
    holder["data"]["password"] = base64.b64encode(PASSWORD.encode()).decode()
    site = site_of(
        ingress("i", rule("a.example.com", path("/", "web")), tls=[{"secretName": "tls"}]),
        service("web"),
        holder,
        snippets={name.replace("_", "-"): text for name, text in snippets.items()},
    )
    assert PASSWORD in site.texts["haproxy.cfg"].text or not snippets
    return site


def everything(site: Site) -> str:
    lines = [f"{path_}:{n}" for path_ in site.texts for n in range(1, len(site.lines_of(path_)) + 1)]
    known = [target for target in TARGETS if target != "userlist staff" or "staff" in site.texts["haproxy.cfg"].text]
    return msgspec.json.encode([to_json(explain(site, target)) for target in (*known, *lines)]).decode()


def test_no_answer_holds_a_private_key_or_a_password() -> None:
    for site in (
        site_with(),
        site_with(sections_staff=USERS),
        site_with(global_borrowed=BORROWED),
        site_with(global_bare=BARE),
        site_with(global_handed_down=HANDED_DOWN),
    ):
        reported = everything(site)
        keys = [
            line
            for file in site.files.values()
            if file.secret
            for line in file.content.decode().split()
            if len(line) > 20
        ]
        assert keys
        assert not [line for line in keys if line in reported]
        assert PASSWORD not in reported
        assert "secret, digest " in reported


def test_a_line_for_a_secret_is_a_hash_and_its_neighbours_are_not() -> None:
    site = site_with(sections_staff=USERS)
    number = number_of(site, "haproxy.cfg", "userlist staff") + 1

    hidden, plain = explain(site, f"haproxy.cfg:{number}"), explain(site, "path-prefix.map:1")

    assert isinstance(hidden, LineAnswer)
    assert isinstance(plain, LineAnswer)
    assert (hidden.line.is_secret, str(hidden.made_by.object)) == (True, "Secret default/tls")
    assert (plain.line.is_secret, plain.line.text) == (False, "a.example.com|/ default_web_80")


def test_a_section_that_is_named_by_a_secret_is_shown_as_a_hash() -> None:
    site = site_with(sections_named=NAMED)
    assert f"userlist {PASSWORD}\n" in site.texts["haproxy.cfg"].text

    reported = everything(site)

    assert "userlist (secret, digest " in reported
    assert PASSWORD not in reported
    with pytest.raises(UnknownTargetError) as caught:
        explain(site, f"userlist {PASSWORD[:-1]}")
    assert caught.value.suggestions == ()


def test_a_certificate_file_is_shown_as_its_digest() -> None:
    site = site_with()

    answer = explain(site, "default_tls.pem")

    assert isinstance(answer, FileAnswer)
    assert (answer.is_secret, answer.digest) == (True, site.files["ssl/default_tls.pem"].digest)


def test_the_last_good_version_of_a_rejected_object_shows_nothing_of_its_secret() -> None:
    """A rejected object may fail before it looks up the Secret that its last good version has read."""
    guarded = ingress("i", rule("a.example.com", path("/", "web")))
    guarded["metadata"]["annotations"] = {
        "nginx.ingress.kubernetes.io/auth-type": "basic",
        "nginx.ingress.kubernetes.io/auth-secret": "users",
    }
    users: Resource = {
        "kind": "Secret",
        "metadata": meta("users"),
        "data": {"auth": base64.b64encode(f"alice:{HASH}".encode()).decode()},
    }
    libraries = ("base", "ssl", "ingress", "nginx-annotations")
    workshop = Workshop([guarded, service("web"), users], libraries=libraries)
    workshop.render()
    unknown = {"nginx.ingress.kubernetes.io/no-such-annotation": "x"}
    annotations = {**guarded["metadata"]["annotations"], **unknown}
    metadata = {**guarded["metadata"], "resourceVersion": "2", "annotations": annotations}
    workshop.put({**guarded, "metadata": metadata})

    site = workshop.site()

    assert [one.subject.name for one in site.rejections] == ["i"]
    assert HASH in site.texts["haproxy.cfg"].text
    assert HASH not in shown_text(site, "haproxy.cfg")
    lines = range(1, len(site.lines_of("haproxy.cfg")) + 1)
    targets = ["Ingress i", "a.example.com", *(f"haproxy.cfg:{number}" for number in lines)]
    assert HASH not in msgspec.json.encode([to_json(explain(site, target)) for target in targets]).decode()
