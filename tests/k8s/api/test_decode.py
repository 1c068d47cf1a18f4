"""Objects as the API server sends them, with whatever numbers their authors have written."""

import time
from collections.abc import Callable

import pytest

from haptic_trio.errors import INVALID_JSON
from haptic_trio.k8s.api.decode import decode_events, decode_object
from haptic_trio.k8s.api.discovery import ServedKind
from haptic_trio.k8s.resource import Resource, ResourceType

WIDGETS = ServedKind(type=ResourceType("example.org/v1", "widgets"), kind="Widget", is_namespaced=True)


def of_object(text: str) -> Resource:
    return decode_object(text.encode(), WIDGETS)


def of_event(text: str) -> Resource:
    (event,) = decode_events(f'{{"type":"ADDED","object":{text}}}\n'.encode())
    return event.object


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
