"""A rejected value leads to the texts of the object that it comes from."""

import base64
from typing import Any

import pytest

from haptic_trio.templating.values.object_texts import find_value, message_about, text_at


def ingress(host: str = "shop.test", **annotations: str) -> dict[str, Any]:
    """Return an Ingress with one *host*."""
    named = {f"nginx.ingress.kubernetes.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "abc", "namespace": "abc", "annotations": named},
        "spec": {"ingressClassName": "haptic", "rules": [{"host": host}]},
    }


TIMEOUT = 'metadata.annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]'
RANGES = 'metadata.annotations["nginx.ingress.kubernetes.io/ranges"]'


def test_value_leads_to_its_annotation_whatever_else_the_emitter_would_reject() -> None:
    assert find_value(ingress(proxy_read_timeout="abc", other="x y"), "abc") == (TIMEOUT,)


@pytest.mark.parametrize("text", ["10.0.0.0/8, abc", "10.0.0.0/8 abc", "abc,10.0.0.0/8"])
def test_item_of_a_list_leads_to_the_list(text: str) -> None:
    assert find_value(ingress(ranges=text), "abc") == (RANGES,)


@pytest.mark.parametrize("text", ["a, x y", "a\nx y\nb", " x y ,a"])
def test_item_with_blanks_leads_to_the_list(text: str) -> None:
    assert find_value(ingress(ranges=text), "x y") == (RANGES,)


def test_empty_value_leads_to_the_annotation_that_is_empty() -> None:
    assert find_value(ingress(ranges="", other="a, ,b"), "") == (RANGES,)


def test_part_of_a_word_does_not_match() -> None:
    assert find_value(ingress(proxy_read_timeout="abcd"), "abc") == ()


def test_annotations_come_first_and_too_many_fields_are_none() -> None:
    assert find_value(ingress(host="abc", proxy_read_timeout="abc"), "abc") == (TIMEOUT, "spec.rules[0].host")
    assert find_value(ingress(a="abc", b="abc", c="abc", d="abc"), "abc") == ()


def test_decoded_value_leads_to_the_field_of_the_secret() -> None:
    data = {"tls.crt": base64.b64encode(b"abc").decode(), "tls.key": "***"}
    secret = {"kind": "Secret", "metadata": {"name": "s", "annotations": {"a": "abc"}}, "data": data}

    assert find_value(secret, "abc") == ('data["tls.crt"]',)
    assert find_value(secret, "***") == ('data["tls.key"]',)


@pytest.mark.parametrize("resource", [None, [], "abc", {"kind": "Secret", "data": "abc"}, {"metadata": None}])
def test_anything_else_has_no_such_field(resource: Any) -> None:
    assert find_value(resource, "abc") == ()


def test_text_at_a_path_is_returned() -> None:
    assert text_at(ingress(proxy_read_timeout="5y"), TIMEOUT) == "5y"
    assert text_at(ingress(), "spec.rules[0].port") is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://alice:S3CRET@auth.test/x?key=S3CRET", "http://…@auth.test/x?…"),
        (f"https://alice:S3CRET@{'a' * 90}.test", f"https://…@{'a' * 70}…"),
        ("X-Api-Key S3CRET", "X-Api-Key …"),
        ("ftp://files.test/a", "ftp://files.test/a"),
    ],
)
def test_credentials_in_the_value_are_blanked(text: str, shown: str) -> None:
    assert message_about(ingress(proxy_read_timeout=text), (TIMEOUT,), "the value is bad") == f'"{shown}" is bad'


def test_message_has_the_value_unless_it_may_be_secret() -> None:
    secret = {"kind": "Secret", "data": {"tls.crt": "YWJj"}}
    annotated = {"kind": "Ingress", "metadata": {"annotations": {"x/api-token": "a b"}}}

    assert message_about(ingress(proxy_read_timeout="5y"), (TIMEOUT,), "the value is bad") == '"5y" is bad'
    assert message_about(secret, ('data["tls.crt"]',), "the value is bad") == "the value is bad"
    assert message_about(annotated, ('metadata.annotations["x/api-token"]',), "the value is bad") == "the value is bad"
