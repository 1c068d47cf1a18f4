"""Recordings of the protocol between controller and agent: each message with a value in every field.

    python -m tests.dataplane.agent.protocol_recording VERSION

writes `recorded/VERSION.json` with the messages of this checkout. Recordings of released versions are never changed.
"""

import base64
import inspect
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from haptic_trio.dataplane.agent import messages
from haptic_trio.dataplane.endpoint import DriftReport
from haptic_trio.dataplane.figures import InstanceFigures
from haptic_trio.haproxy.model import FileKind

RECORDED: Final = Path(__file__).parent / "recorded"
MESSAGES: Final[dict[str, type[msgspec.Struct]]] = {
    name: each
    for name, each in {**vars(messages), "DriftReport": DriftReport, "InstanceFigures": InstanceFigures}.items()
    if inspect.isclass(each) and issubclass(each, msgspec.Struct)
}
"""Every message, and what it consists of."""
WORDS: Final[dict[str, type[Enum]]] = {
    each.__name__: each for each in (messages.ErrorCode, messages.EventKind, FileKind)
}
DIGEST: Final = "0123456789abcdef0123456789abcdef01234567"
_SCALARS: Final[dict[type[types.Type], Any]] = {
    types.BytesType: base64.b64encode(b"content").decode(),
    types.BoolType: True,
    types.IntType: 7,
    types.FloatType: 1.5,
}


class Recording(msgspec.Struct, frozen=True):
    """The messages of a version as JSON, by the name of their class, and the values of its enumerations."""

    messages: dict[str, msgspec.Raw]
    words: dict[str, list[str]]


def sample(kind: types.Type) -> Any:
    """Return a value of *kind*, as JSON has it, with every field; an array of alternatives has one of each."""
    match kind:
        case types.StructType():
            values = {field.encode_name: sample(field.type) for field in kind.fields}
            found: Any = values if kind.tag is None else {str(kind.tag_field): kind.tag, **values}
            return list(values.values()) if kind.array_like else found
        case types.UnionType():
            return next(sample(each) for each in kind.types if not isinstance(each, types.NoneType))
        case types.CollectionType(item_type=item):
            return [sample(each) for each in (item.types if isinstance(item, types.UnionType) else [item])]
        case types.TupleType():
            return [sample(each) for each in kind.item_types]
        case types.DictType():
            return {sample(kind.key_type): sample(kind.value_type)}
        case _:
            return _scalar(kind)


def _scalar(kind: types.Type) -> Any:
    match kind:
        case types.EnumType():
            return next(iter(kind.cls)).value
        case types.StrType():
            return DIGEST if kind.pattern else "text"
    return _SCALARS[type(kind)]


def record() -> Recording:
    """Return the recording of this checkout."""
    return Recording(
        {name: msgspec.Raw(msgspec.json.encode(sample(types.type_info(each)))) for name, each in MESSAGES.items()},
        {name: [one.value for one in each] for name, each in WORDS.items()},
    )


def main(arguments: Sequence[str]) -> None:
    """Write the recording of the version that *arguments* name."""
    (version,) = arguments
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{version}.json").write_bytes(msgspec.json.format(msgspec.json.encode(record())) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
