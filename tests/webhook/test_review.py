"""Reviews as the API server sends them, and answers as it expects them."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.webhook.review import (
    LONGEST_WARNING,
    MOST_WARNINGS,
    Answer,
    ReviewError,
    decode_review,
    encode_answer,
)
from tests.webhook.builders import body_of, review_of


def test_request_is_decoded() -> None:
    request = decode_review(body_of(review_of({"metadata": {"name": "web"}}, dry_run=True)))

    assert request.uid == "u-1"
    assert request.resource.api_version == "networking.k8s.io/v1"
    assert request.operation == "CREATE"
    assert request.dry_run
    assert request.object == {"metadata": {"name": "web"}}


def test_fields_of_later_versions_are_passed_over() -> None:
    review = review_of({"metadata": {"name": "web"}})
    review["request"]["userInfo"] = {"username": "somebody"}
    review["later"] = 1

    assert decode_review(body_of(review)).name == "web"


def test_an_object_with_very_many_levels_is_reviewed() -> None:
    body = body_of(review_of({"metadata": {"name": "web", "managedFields": [{"fieldsV1": {}}]}}))
    deep = body.replace(b'"fieldsV1":{}', b'"fieldsV1":' + b'{"f:a":' * 10_000 + b"{}" + b"}" * 10_000)
    assert deep != body

    assert decode_review(deep).name == "web"


def test_an_object_with_bytes_that_are_not_utf_8_is_reviewed() -> None:
    body = body_of(review_of({"metadata": {"name": "web", "managedFields": [{"fieldsV1": {"f:a": {}}}]}}))
    odd = body.replace(b'"f:a"', b'"f:\xff"')
    assert odd != body

    assert decode_review(odd).name == "web"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": 1}}',
        b'{"a":' * 100_000,
        b"\xff\xfe",
        body_of({**review_of({}), "apiVersion": "admission.k8s.io/v1beta1"}),
        body_of({**review_of({}), "kind": "TokenReview"}),
        body_of(review_of({"metadata": ["no", "mapping"]})),
        body_of(review_of({"metadata": None})),
        body_of(review_of({"metadata": {"name": 7}})),
        body_of(review_of({"metadata": {}}, old={"kind": {}, "metadata": {}})),
    ],
)
def test_rubbish_is_not_a_review(body: bytes) -> None:
    with pytest.raises(ReviewError):
        decode_review(body)


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_review_or_rubbish(body: bytes) -> None:
    with pytest.raises(ReviewError):
        decode_review(body)


@pytest.mark.parametrize("number", ["1.23456789e300", "1e300", "5e-324"])
def test_very_many_numbers_take_little_processor_time(number: str) -> None:
    body = body_of(review_of({"metadata": {"name": "web"}, "spec": {"a": "?"}}))
    body = body.replace(b'"?"', f"[{','.join([number] * 100_000)}]".encode())

    before = time.process_time()
    request = decode_review(body)

    # The event loop waits. msgspec itself would take 2 to 5 s.
    assert time.process_time() - before < 0.5
    assert request.object is not None
    assert set(request.object["spec"]["a"]) == {float(number)}


def test_object_is_named_by_what_it_is_and_where_it_would_be() -> None:
    created = decode_review(body_of(review_of({"kind": "Ingress", "metadata": {"name": "web"}})))
    deleted = decode_review(body_of(review_of(None, old={"kind": "Ingress", "metadata": {"name": "web"}})))

    assert created.ref == deleted.ref == ResourceRef("Ingress", "default", "web")


def test_a_namespace_has_no_namespace_although_its_review_has_one() -> None:
    review = review_of({"kind": "Namespace", "metadata": {"name": "default"}})
    review["request"]["resource"] = {"group": "", "version": "v1", "resource": "namespaces"}

    assert decode_review(body_of(review)).ref == ResourceRef("Namespace", "", "default")


def test_rejection_carries_its_message_and_the_uid_of_the_request() -> None:
    answer = msgspec.json.decode(encode_answer("u-7", Answer(allowed=False, message="no")))

    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "u-7"
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["message"] == "no"
    assert answer["response"]["status"]["code"] == 422


def test_warnings_are_short_single_lines_and_not_too_many() -> None:
    warnings = ("two\nlines", "x" * 1000, *("more" for _ in range(50)))

    response = msgspec.json.decode(encode_answer("u", Answer(warnings=warnings)))["response"]

    assert response["warnings"][0] == "two lines"
    assert len(response["warnings"]) == MOST_WARNINGS
    assert max(map(len, response["warnings"])) == LONGEST_WARNING
    assert "status" not in response
