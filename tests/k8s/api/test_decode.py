"""Objects as the API server sends them, with whatever numbers their authors have written."""

import time
from collections.abc import Callable

import pytest

from haptic_trio.errors import INVALID_JSON
from haptic_trio.k8s.api.decode import decode_events, decode_object, decode_objects, decode_page
from haptic_trio.k8s.api.discovery import ServedKind
from haptic_trio.k8s.resource import Resource, ResourceType, without_deep_levels

WIDGETS = ServedKind(type=ResourceType("example.org/v1", "widgets"), kind="Widget", is_namespaced=True)


def of_object(text: str) -> Resource:
    return decode_object(text.encode(), WIDGETS)


def of_event(text: str) -> Resource:
    (event,) = decode_events(f'{{"type":"ADDED","object":{text}}}\n'.encode())
    return event.object


def of_page(text: str) -> Resource:
    page = decode_page(f'{{"metadata":{{}},"items":[{text}]}}'.encode())
    (found,) = decode_objects(page.items or (), WIDGETS)
    return found


@pytest.mark.parametrize("decode", [of_object, of_event])
def test_very_many_numbers_take_little_processor_time(decode: Callable[[str], Resource]) -> None:
    text = f'{{"spec":[{",".join(["1.23456789e300"] * 100_000)}]}}'

    before = time.process_time()
    found = decode(text)

    # The event loop waits. msgspec itself would take 5 s.
    assert time.process_time() - before < 0.5
    assert set(found["spec"]) == {1.23456789e300}


@pytest.mark.parametrize("decode", [of_object, of_event])
def test_a_number_out_of_range_is_invalid(decode: Callable[[str], Resource]) -> None:
    with pytest.raises(INVALID_JSON):
        decode('{"spec":1e999}')
    assert decode('{"spec":[1.5,-0.25,3]}')["spec"] == [1.5, -0.25, 3]


@pytest.mark.parametrize("levels", [1_000, 10_000])
@pytest.mark.parametrize("decode", [of_object, of_event, of_page])
def test_levels_that_an_author_has_written_cost_no_other_object(decode: Callable[[str], Resource], levels: int) -> None:
    # A real API server stores both: managedFields of any kind, and what a definition without a schema allows.
    fields = '{"f:a":' * levels + "{}" + "}" * levels
    lists = "[" * levels + "]" * levels
    metadata = f'{{"name":"a","managedFields":[{{"fieldsV1":{fields}}}]}}'
    text = f'{{"metadata":{metadata},"spec":{{"text":"]}}","more":{lists}}}}}'

    found = decode(text)

    assert found["metadata"]["name"] == "a"
    assert found["spec"]["text"] == "]}"
    assert found["spec"]["more"] != []


def test_lines_beside_one_with_very_many_levels_are_complete() -> None:
    line = '{"type":"ADDED","object":{"spec":%s}}\n'
    events = decode_events((line % '{"a":[1]}' + line % ("[" * 5_000 + "]" * 5_000) + line % '{"b":[{}]}').encode())
    assert [events[0].object["spec"], events[2].object["spec"]] == [{"a": [1]}, {"b": [{}]}]


NOT_UTF_8 = [b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
"""As a real API server stores them in names of managedFields, and sends them to each watch of the kind."""


@pytest.mark.parametrize("levels", [0, 1_000])
@pytest.mark.parametrize("name", NOT_UTF_8)
def test_bytes_that_are_not_utf_8_cost_no_other_object(name: bytes, levels: int) -> None:
    fields = b'{"f:a":' * levels + b'{"f:%s":{}}' % name + b"}" * levels
    text = b'{"metadata":{"name":"a","managedFields":[{"fieldsV1":%s}]},"spec":{"text":"gr\xc3\xbcn"}}' % fields
    other = b'{"metadata":{"name":"b"},"spec":{"text":"gr\xc3\xbcn"}}'
    wanted = [("a", "grün"), ("b", "grün")]

    page = decode_page(b'{"metadata":{},"items":[%s,%s]}' % (text, other))
    listed = decode_objects(page.items or (), WIDGETS)
    watched = [
        one.object for one in decode_events(b"".join(b'{"type":"ADDED","object":%s}\n' % it for it in (text, other)))
    ]

    assert [(one["metadata"]["name"], one["spec"]["text"]) for one in listed] == wanted
    assert [(one["metadata"]["name"], one["spec"]["text"]) for one in watched] == wanted
    assert decode_object(text, WIDGETS)["spec"] == {"text": "grün"}


DEEP = b"[" * 10_000 + b"]" * 10_000


@pytest.mark.parametrize(
    "text", [DEEP * 50, DEEP + b"{}" * 500_000, DEEP + b'"' * 1_000_001, DEEP + b'"' + b"\\" * 999_999]
)
def test_levels_are_left_out_in_linear_time(text: bytes) -> None:
    before = time.process_time()
    without_deep_levels(text)

    # Quadratic, it would take minutes.
    assert time.process_time() - before < 5.0
