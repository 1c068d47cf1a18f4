"""Excerpts of configurations and manifests show no credential that is written into them."""

import time

import pytest

from haptic_trio.redaction.documents import without_credentials_in_yaml

SECRET = "S3CRET-x"


@pytest.mark.parametrize(
    "text",
    [
        "token: >\n  S3CRET-x\nnext: 1",
        "a:\n  api_key: |-\n    S3CRET-x\n\n    S3CRET-x\n  b: 1",
        "tokens:\n  - S3CRET-x\nb: 1",
        "tokens:\n- S3CRET-x\nb: 1",
        "tokens:\n  shop: S3CRET-x",
        "tokens: [S3CRET-x]",
        "tokens: [a,\n  S3CRET-x]",
        "x: {token: S3CRET-x, b: c}",
        "x: {b: c, 'api-key': S3CRET-x}",
        '{"templating": {"extraContext": {"apiToken": "S3CRET-x"}}}',
        '{"data": {"config": "{\\"extraContext\\": {\\"apiToken\\": \\"S3CRET-x\\"}}"}}',
        "token: !!str S3CRET-x",
        "token: &a S3CRET-x",
        "token: &a |\n  S3CRET-x",
        "token: S3CRET-y\n  S3CRET-x\nb: 1",
        "token:\n  S3CRET-x",
        "token: 'a\n  S3CRET-x'\n",
        "- token: S3CRET-x",
        "- name: a\n  token: >-\n    S3CRET-x\n",
        "config: |\n  extraContext:\n    token: >\n      S3CRET-x\n",
        "url: https://u:S3CRET-x@h/",
        "tokens: {shop: S3CRET-x}",
        "tokens:\n  - shop: S3CRET-x",
        "tokens:\n  - name: a\n    value: S3CRET-x",
        '{"tokens": ["S3CRET-x"]}',
        '{"tokens": {"shop": "S3CRET-x"}}',
        "config: |\n  frontend a\n    http-request set-header X-Api-Key S3CRET-x\n",
        '"token" : S3CRET-x',
        "password:  # comment\n  S3CRET-x",
    ],
)
def test_the_value_of_a_secret_key_is_blanked_and_lines_stay(text: str) -> None:
    shown = without_credentials_in_yaml(text)

    assert SECRET not in shown
    assert shown.count("\n") == text.count("\n")


def test_credentials_in_settings_are_blanked_and_templates_in_them_as_well() -> None:
    shown = without_credentials_in_yaml(
        "extraContext:\n  apiToken: S3CRET-x\n  'password': \"S3CRET-x\"\n  tokens: [a]\n"
        "haproxyConfig:\n  template: |\n    {{ http.fetch(url, auth={\n      'x': 'S3CRET-x'}) }}\n  secret: {a: b}\n"
    )

    assert SECRET not in shown
    assert "apiToken: …" in shown
    assert "{{ http.fetch(url, auth={" in shown
    assert shown.count("\n") == 9


@pytest.mark.parametrize(
    "text",
    [
        "watchedResources:\n  tlsSecrets:\n    apiVersion: v1\n    resources: secrets\n    indexBy: [metadata.name]\n",
        "  tls:\n  - hosts: [a]\n    secretName: web\n  rules: []\n",
        "tokens:\nnext: 1\n",
    ],
)
def test_other_text_is_shown(text: str) -> None:
    assert without_credentials_in_yaml(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "token:" + " &a" * 20_000 + " x",
        "{token: " * 20_000,
        "password" * 20_000,
        "token: |\n " * 20_000,
        "- " * 20_000 + "token: |",
    ],
    ids=lambda text: text[-20:],
)
def test_long_texts_take_no_long_time(text: str) -> None:
    started = time.process_time()
    without_credentials_in_yaml(text)
    assert time.process_time() - started < 15
