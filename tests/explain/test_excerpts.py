"""Excerpts of rendered files: whole lines, within a limit, without content of Secrets."""

import base64
from functools import cache

import pytest

from haptic_trio.explain.site import Site, take_excerpt
from tests.explain.sites import secret, site_of
from tests.support.kubernetes import ingress, path, rule, service

MAIN, MAP = "haproxy.cfg", "maps/path-prefix.map"


PASSWORD = "correct-horse-battery"
USERS = """\
userlist staff
{% each secret in resources.tlsSecrets %}
    user {{ ident(secret.metadata.name) }} insecure-password {{ ident(secret.data.password | b64decode) }}
{% endeach %}
"""


@cache
def make_site() -> Site:
    holder = secret("tls", "a.example.com")
    holder["data"]["password"] = base64.b64encode(PASSWORD.encode()).decode()
    routes = [ingress(f"i{number}", rule(f"host-{number}.example.com", path("/", "web"))) for number in range(20)]
    return site_of(*routes, service("web"), holder, snippets={"sections-staff": USERS})


def test_small_file_is_whole_and_says_how_many_lines_are_hidden() -> None:
    site = make_site()
    excerpt = take_excerpt(site, MAIN, 1 << 20)

    assert (excerpt.first_omitted, excerpt.bytes) == (0, len(site.texts[MAIN].text.encode()))
    assert excerpt.text.count("\n") == len(site.lines_of(MAIN))
    assert PASSWORD in site.texts[MAIN].text
    assert PASSWORD not in excerpt.text
    assert excerpt.hidden_lines == excerpt.text.count("# secret, digest ") > 0


@pytest.mark.parametrize("file", [MAIN, MAP])
@pytest.mark.parametrize("limit", [0, 1, 100, 333])
def test_excerpt_has_whole_lines_within_the_limit_and_names_the_next_one(file: str, limit: int) -> None:
    site = make_site()
    lines = site.lines_of(file)

    excerpt = take_excerpt(site, file, limit)

    assert len(excerpt.text.encode()) <= limit
    assert excerpt.first_omitted == excerpt.text.count("\n") + 1 <= len(lines)
    assert excerpt.text.splitlines() == lines[: excerpt.first_omitted - 1]
    assert len(f"{excerpt.text}{lines[excerpt.first_omitted - 1]}\n".encode()) > limit
