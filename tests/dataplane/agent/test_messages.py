"""Controllers and agents understand other versions: recorded messages are decoded, with every value."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from haptic_trio import __version__
from haptic_trio.dataplane.agent.messages import DoneAnswer
from tests.dataplane.agent.protocol_recording import MESSAGES, RECORDED, WORDS, Recording, record

VERSIONS = sorted(file.stem for file in RECORDED.glob("*.json"))


def read(version: str) -> Recording:
    return msgspec.json.decode((RECORDED / f"{version}.json").read_bytes(), type=Recording)


def lost(recorded: Any, decoded: Any, place: str = "$") -> Iterator[str]:
    """Yield where *decoded* lacks a value of *recorded*; more fields than these are no loss."""
    match recorded, decoded:
        case dict(), dict():
            for name, value in recorded.items():
                if name in decoded:
                    yield from lost(value, decoded[name], f"{place}.{name}")
                else:
                    yield f"{place}.{name}"
        case list(), list() if len(recorded) <= len(decoded):
            for number, value in enumerate(recorded):
                yield from lost(value, decoded[number], f"{place}[{number}]")
        case _ if recorded != decoded:
            yield f"{place}: {decoded!r} instead of {recorded!r}"


def with_more_fields(value: Any) -> Any:
    """Return *value* with a field that no version knows in each of its objects."""
    if isinstance(value, dict):
        return {"field of a newer version": 1, **{name: with_more_fields(each) for name, each in value.items()}}
    return [with_more_fields(each) for each in value] if isinstance(value, list) else value


CASES = [(version, name) for version in VERSIONS for name in read(version).messages]


@pytest.mark.parametrize(("version", "name"), CASES)
def test_every_value_of_a_recorded_message_is_understood(version: str, name: str) -> None:
    text = read(version).messages[name]

    decoded = msgspec.json.encode(msgspec.json.decode(text, type=MESSAGES[name]))

    assert list(lost(msgspec.json.decode(text), msgspec.json.decode(decoded))) == []


@pytest.mark.parametrize(("version", "name"), CASES)
def test_fields_of_a_newer_version_are_tolerated(version: str, name: str) -> None:
    text = read(version).messages[name]
    if name == "DriftReport":
        # Its only object maps kinds of differences to numbers.
        more = {"field of a newer version": 1, **msgspec.json.decode(text)}
    else:
        more = with_more_fields(msgspec.json.decode(text))

    assert msgspec.convert(more, MESSAGES[name], strict=True) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_values_of_recorded_enumerations_are_known(version: str) -> None:
    known = {name: {one.value for one in each} for name, each in WORDS.items()}

    unknown = [one for name, values in read(version).words.items() for one in values if one not in known[name]]
    assert unknown == []


def test_field_that_an_older_version_does_not_send_has_its_default() -> None:
    assert msgspec.json.decode(b'{"generation": "g", "seconds": 1.0}', type=DoneAnswer).rival == ""


def test_recording_of_this_version_has_every_message_as_it_is_now() -> None:
    current = record()
    recorded = read(__version__)

    assert recorded.messages.keys() == current.messages.keys(), "python -m tests.dataplane.agent.protocol_recording"
    for name, text in current.messages.items():
        assert msgspec.json.decode(recorded.messages[name]) == msgspec.json.decode(text), name
    assert recorded.words == current.words
