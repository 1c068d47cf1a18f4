"""Lines of templates that problems show hold no credential that is written into them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.errors import ProblemsError
from haptic_trio.redaction.sources import without_credentials
from haptic_trio.templating.engine import Engine
from tests.templating.rendering import rejected

SECRET = "S3CRET-x"


@pytest.mark.parametrize(
    "source",
    [
        "{{ http.fetch('ftp://x/', auth={'token': 'S3CRET-x'}) }}",
        '{% set t = http.fetch("ftp://x/", interval="5m", auth={"username": "S3CRET-x", "password": "S3CRET-x"}) %}',
        "{{ http.fetch('ftp://x/', headers={'Authorization': 'Basic ' ~ ('S3CRET-x' | b64encode)}) }}",
        "{{ http.fetch('ftp://x/', headers={'X-Key': ['S3CRET-x']}) }}",
        "{{ http.fetch('ftp://x/', auth = {\n  'token':\n    'S3CRET-x'\n}, critical=true) }}",
        "{%- set a = {'token': 'S3CRET-x'} -%}{{ http.fetch('ftp://x/', auth=a) }}",
        "{% set a = {'username': 'me', 'x': 'S3CRET-x'} %}{{ http.fetch('ftp://x/', auth=a) }}",
        "{% set b = 'S3CRET-x' %}{% set a = b ~ '!' %}{{ http.fetch('ftp://x/', headers={'X-Key': a}) }}",
        "{{ http.fetch('ftp://x/', headers={'X-Key': late}) }}{% set late %}\nS3CRET-x\n{% endset %}",
        "{% macro key() %}S3CRET-x{% endmacro %}{{ http.fetch('ftp://x/', headers={'X-Key': key()}) }}",
        "{% for one in ['S3CRET-x'] %}{{ http.fetch('ftp://x/', headers={'X-Key': one}) }}{% endfor %}",
        "{% with one = 'S3CRET-x' %}{{ http.fetch('ftp://x/', headers={'X-Key': one}) }}{% endwith %}",
        "{% macro get(u, k) %}{{ http.fetch(u, headers={'X': k}) }}{% endmacro %}{{ get('ftp://x/', 'S3CRET-x') }}",
        "{{ get(k=f('S3CRET-x')) }}{% macro get(k) %}{{ http.fetch('ftp://x/', headers={'X': k}) }}{% endmacro %}",
        "{% macro get(k='S3CRET-x') %}{{ http.fetch('ftp://x/', headers={'X': k}) }}{% endmacro %}{{ get() }}",
        "{% macro f(k) %}{{ k }}{% endmacro %}{{ http.fetch('ftp://x/', headers={'X': f(f('S3CRET-x'))}) }}",
        "{% macro f() %}{{ http.fetch('ftp://x/', headers={'X': varargs[0]}) }}{% endmacro %}{{ f('S3CRET-x') }}",
        "{% macro f() %}{{ fetch(headers={'X': caller()}) }}{% endmacro %}{% call f() %}S3CRET-x{% endcall %}",
        "{% set k | indent(width=4) %}S3CRET-x{% endset %}{{ http.fetch('ftp://x/', headers={'X': k}) }}",
        "{% set o = {'headers': {'X': 'S3CRET-x'}} %}{{ http.fetch('ftp://x/', **o) }}",
        "{{ http.fetch('https://me:S3CRET-x@lists.example.com/') }}",
        "{{ http.fetch('https://S3CRET-x@lists.example.com/') }}",
        "{{ http.fetch('https://lists.example.com/?key=S3CRET-x') }}",
        "{% set password = 'S3CRET-x' %}",
        "{% set options = {'api_key': 'S3CRET-x'} %}",
        "{{ f(private_key='S3CRET-x') }}",
        "{# auth={'token': 'S3CRET-x'} #}{# headers={'X-Key': 'S3CRET-x',\n 'Y': 'S3CRET-x'} #}",
        "    user me insecure-password S3CRET-x",
        '    user me password "S3CRET-x"',
        "    user me groups staff insecure-password S3CRET-x",
        "    stats auth admin:S3CRET-x",
        "    setenv DB_PASSWORD S3CRET-x",
        "    http-request set-header Authorization 'Bearer S3CRET-x'",
        '    http-request set-header Authorization "Basic S3CRET-x"',
        "    http-request set-header Authorization S3CRET-x",
        "{#\n    user me groups staff insecure-password S3CRET-x\n#}",
        "{#\n    setenv DB_PASSWORD S3CRET-x\n#}",
        "{# http-request set-header Authorization S3CRET-x #}",
        "{% raw %}{{ token: 'S3CRET-x' }}{% endraw %}",
        "{{ http.fetch('ftp://x/', auth={'token': 'S3CRET-x",
        "{{ http.fetch('ftp://x/', auth={'token': \"S3CRET-x\" ",
        "{% set a = {'token': 'S3CRET-x' }}",
        "{{ f({'token': 'S3CRET-x'}}",
        "{{ http.fetch('ftp://x/', auth={'token': 'it''s', 'x': 'S3CRET-x'}) }}",
        "    http-check send hdr X-Api-Key {{ 'S3CRET-x' | word }}",
        "    http-request set-header X-Api-Key {{ key | word }}{% set key = 'S3CRET-x' %}",
        "{% set k = 'S3CRET-x' %}\n    http-request set-header X-Api-Key {{ k | word }}",
        "{% for key, who in {'S3CRET-x': 'shop'}.items() %}\nacl a req.hdr(x-api-key) {{ key | pattern }}",
        "{% set keys = {'S3CRET-x': 'shop'} %}{% for key in keys.items() %}\nacl a req.hdr(x-api-key) {{ key }}",
        "{% for user, pw in {'shop': 'S3CRET-x'}.items() %}\n    user {{ user }} insecure-password {{ pw }}",
        "{% set tokens = {'S3CRET-x': 'shop'} %}",
        "{% for token in ['S3CRET-x'] %}{% endfor %}",
        "{% for token, who in [('S3CRET-x', 'a')] %}{% endfor %}",
        "{% set token %}S3CRET-x{% endset %}",
        "{% set token %}\n  {{ 'S3CRET-x' }}\n{% endset %}",
        "{% set line = 'http-request set-header X-Api-Key S3CRET-x' %}",
        "{{ 'http-request set-header X-Api-Key ' ~ 'S3CRET-x' }}",
        "{{ set_header('X-Api-Key', 'S3CRET-x') }}",
        "{% for n, v in [('X-Api-Key', 'S3CRET-x')] %}",
        "    http-request set-header {{ name }}-Token S3CRET-x",
        "{% with access_key='S3CRET-x' %}{% endwith %}",
        "{{ f({'access-key': 'S3CRET-x'}) }}",
        "{% call f(token='S3CRET-x') %}{% endcall %}",
        '{{ f(token="S3CRET-x") | nofilter }}',
        '{{ f("\\"token\\": \\"S3CRET-x\\"") }}',
    ],
)
def test_credentials_are_blanked_and_lines_stay(source: str) -> None:
    shown = without_credentials(source)

    assert SECRET not in shown
    assert shown.count("\n") == source.count("\n")
    assert "…" in shown


@pytest.mark.parametrize(
    "source",
    [
        '{{- fail("a path must begin with / and hold no empty element") -}}',
        '{% if "auth-secret" in nginx %}{{ nginx["auth-secret"] | word }}{% endif %}',
        "{% for secret in resources.secrets.get(namespace, name) %}{{ secret.data['tls.crt'] | b64decode | pem }}",
        "    user {{ user }} password {{ hashed }}",
        "{{ http.fetch(url, auth=credentials, headers={'X-Key': key}) }}",
        "{{ http.fetch('https://lists.example.com/deny.txt', interval='5m') }}",
        "    http-request set-header x-token {{ token | word }}",
        "    server s1 10.0.0.1:80 check",
        "{{ secret | dig('metadata.name', '') }}{# the Secret, its token and who reads it #}",
        "{{ fail('the Secret has no password for ' ~ name) }}",
        '{% for name in own if name in ["api-key-header", "api-key-secret"] %}',
    ],
)
def test_other_text_than_credentials_is_shown(source: str) -> None:
    assert without_credentials(source) == source


def test_no_problem_of_a_render_shows_a_credential() -> None:
    problem = rejected(
        "{% set one = 'S3CRET-x' %}\n{{ http.fetch('ftp://x/', auth={'token': one, 'x': 'S3CRET-x'}) }}\n"
        "user a password S3CRET-x"
    )

    assert "> 2 |" in problem.excerpt
    assert "http.fetch" in problem.excerpt
    assert SECRET not in f"{problem!r}"


def test_no_problem_of_a_template_that_cannot_be_compiled_shows_a_credential() -> None:
    with pytest.raises(ProblemsError) as caught:
        Engine({"main": "{{ http.fetch('https://x/', auth={'token': 'S3CRET-x'}) | nofilter }}\n{% if %}"})

    assert caught.value.problems
    assert SECRET not in repr(caught.value.problems)


@pytest.mark.parametrize(
    "source",
    [
        "{{ (" + "}} " * 50_000,
        "{{" * 50_000,
        "a." * 100_000,
        "{% set token = '" * 20_000,
        "password " * 50_000,
        "setenv " + "password" * 50_000,
        "auth={:" + " " * 100_000 + "x",
        "{{ f(auth=a) }}" + "{% set a %}" * 20_000,
        "{{ f(auth=a) }}" + "{% macro a(b) %}" * 20_000,
        "{% macro a(b) %}{{ f(auth=b) }}{% endmacro %}{{ " + "a(" * 20_000,
        "{{ f(auth=a) }}{% with " + "a=(" * 20_000,
        "{% set token %}a {{ 'x' }}" * 10_000,
        "token {{ a }}{% set a = b %}" * 10_000,
        "{{ f(" + "('token', 'a'), " * 20_000,
        "token" * 50_000 + ": ",
        "{{ f(auth=a0) }}" + "".join(f"{{% set a{n} = a{n + 1} %}}" for n in range(10_000)),
    ],
    ids=lambda source: source[-20:],
)
def test_long_texts_take_no_long_time(source: str) -> None:
    started = time.process_time()
    without_credentials(source)
    assert time.process_time() - started < 15


PIECES = [
    "{{", "}}", "{%", "%}", "{#", "#}", "'", '"', "a", "=", ":", "{", "}", "(", ")", "\n", " set ", " auth", " endset ",
    " macro ", " call ", " a(", " endmacro ", "token", "://", "@", "?", "raw", "\\", " in ",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_keeps_its_lines(source: str) -> None:
    assert without_credentials(source).count("\n") == source.count("\n")
