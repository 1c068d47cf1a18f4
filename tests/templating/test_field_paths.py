"""A rejection leads to the fields that it is about, and to none where it could be about any."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.errors import Problem
from haptic_trio.templating.field_paths import find_fields, name_fields, without_emitter
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.emitters import EMITTERS
from haptic_trio.templating.values.object_texts import MOST_TEXTS
from tests.webhook.builders import web

PATH_RULE = "a path must begin with / and must not have an empty, . or .. element or an encoded slash"


def with_paths(*paths: str, host: str = "shop.test", **annotations: str) -> dict[str, Any]:
    """Return an Ingress `web` with *paths* under one host."""
    rule = {"host": host, "http": {"paths": [{"path": each, "pathType": "Exact"} for each in paths]}}
    return {**web(annotations=annotations), "spec": {"rules": [rule]}}


def rejection_of(emitter: str, value: str) -> str:
    """Return the message with which *emitter* rejects *value*."""
    with pytest.raises(EmitError) as rejected:
        EMITTERS[emitter](value)
    return str(rejected.value)


def test_field_is_found_by_the_emitter_that_rejects_it_in_the_same_words() -> None:
    found = find_fields(with_paths("/", "/a b", "/cd e"), rejection_of("url_path", "/a b"))

    assert found == ("spec.rules[0].http.paths[1].path",)


def test_fields_with_the_same_fault_are_all_named_up_to_a_few() -> None:
    message = rejection_of("url_path", "/a b")

    assert len(find_fields(with_paths("/a b", "/b c"), message)) == 2
    assert find_fields(with_paths(*["/a b"] * 4), message) == ()


def test_item_of_a_list_in_an_annotation_leads_to_the_annotation() -> None:
    message = rejection_of("header_name", "X Y")

    assert find_fields(with_paths("/", headers="X-A, X Y"), message) == ("metadata.annotations.headers",)


@pytest.mark.parametrize("path", ["a", "/a//b", "/a/../b", "/a%2Fb"])
def test_path_that_a_library_rejects_is_found(path: str) -> None:
    assert find_fields(with_paths("/", "/good/", path), PATH_RULE) == ("spec.rules[0].http.paths[2].path",)


def test_path_of_a_route_is_found() -> None:
    matches = [{"path": {"type": "Exact", "value": value}} for value in ("/", "/a b")]
    route = {"kind": "HTTPRoute", "metadata": {"name": "r"}, "spec": {"rules": [{"matches": matches}]}}
    message = "a path must begin with / and must not have #, ?, blanks, or elements that are empty, . or .."

    assert find_fields(route, message) == ("spec.rules[0].matches[1].path.value",)


def test_backend_that_is_not_a_service_is_found_by_what_it_is() -> None:
    bucket = {"resource": {"apiGroup": "example.com", "kind": "Bucket", "name": "b"}}
    resource = with_paths("/a", "/b")
    resource["spec"]["rules"][0]["http"]["paths"][1]["backend"] = bucket
    resource["spec"]["defaultBackend"] = bucket

    assert find_fields(resource, "a backend must name a service; resource backends are not supported") == (
        "spec.rules[0].http.paths[1].backend.resource.kind",
        "spec.defaultBackend.resource.kind",
    )


def test_message_that_could_be_about_anything_leads_nowhere() -> None:
    resource = with_paths("/", "/b", a="x", b="y", c="z")

    assert find_fields(resource, rejection_of("duration", "x")) == ()
    assert find_fields(resource, "a Service of type ExternalName is not supported as a backend of an Ingress") == ()
    assert find_fields(None, PATH_RULE) == ()


def test_nothing_of_a_secret_is_looked_at() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"path": "/a b"}}

    assert find_fields(secret, rejection_of("url_path", "/a b")) == ()


def test_what_the_author_has_not_written_is_not_named() -> None:
    resource = with_paths("/", **{"kubectl.kubernetes.io/last-applied-configuration": "/a b"})
    resource["status"] = {"path": "/a b"}
    resource["metadata"]["managedFields"] = ["/a b"]

    assert find_fields(resource, rejection_of("url_path", "/a b")) == ()


def test_object_that_is_made_to_take_long_does_not() -> None:
    long_list = with_paths("/", **{f"a{n}": ",".join(["x"] * 2000) for n in range(500)})
    long_texts = with_paths("/", **{f"a{n}": "a.b-c/" * 600 for n in range(500)})
    deep: Any = "/a b"
    for _ in range(500):
        deep = [deep]
    began = time.process_time()

    assert find_fields(long_list, rejection_of("url_path", "/a b")) == ()
    assert find_fields(long_texts, rejection_of("regex", "\n")) == ()
    assert find_fields({**web(), "spec": deep}, rejection_of("url_path", "/a b")) == ()
    assert time.process_time() - began < 0.5
    assert MOST_TEXTS < 500 * 2000


TEXTS = st.text(max_size=8)
OBJECTS = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.integers() | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(
    spec=OBJECTS,
    message=st.sampled_from([f"{name}: the value is empty" for name in EMITTERS] + [PATH_RULE]) | TEXTS,
)
def test_any_object_and_message_give_a_few_fields_or_none(spec: dict[str, Any], message: str) -> None:
    assert len(find_fields({**web(), "spec": spec}, message)) <= 3


def test_name_of_the_emitter_is_not_reported() -> None:
    assert without_emitter("url_path: the value is empty") == "the value is empty"
    assert without_emitter("the Service has: nothing") == "the Service has: nothing"
    assert without_emitter("pem: a key is encrypted") == "a key is encrypted"


def test_problem_names_the_field_and_its_value() -> None:
    problem = name_fields(with_paths("/", "/a b"), Problem(message=rejection_of("url_path", "/a b")))

    assert (problem.path, problem.message) == (
        "spec.rules[0].http.paths[1].path",
        '"/a b" contains a space at character 3',
    )


def test_annotation_that_a_library_names_without_its_prefix_is_found() -> None:
    resource = web(annotations={"nginx.ingress.kubernetes.io/auth-type": "x", "auth-type": "y"})

    assert find_fields(resource, "auth-type must be basic, digest") == (
        'metadata.annotations["nginx.ingress.kubernetes.io/auth-type"]',
    )


def test_content_of_a_secret_leads_to_the_annotation_that_names_the_secret() -> None:
    resource = web(annotations={"haproxy.org/auth-secret": "users", "nginx.ingress.kubernetes.io/auth-type": "basic"})

    assert find_fields(resource, "htpasswd: a user is listed twice") == (
        'metadata.annotations["haproxy.org/auth-secret"]',
    )
    assert find_fields(resource, "authorities: there is no certificate") == ()
