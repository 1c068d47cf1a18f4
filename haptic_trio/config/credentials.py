"""Credentials Secret; its values never appear in a representation or a problem."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem

_REDACTED = "<redacted>"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials for the Data Plane API."""

    dataplane_username: str
    dataplane_password: str

    def __repr__(self) -> str:
        return f"Credentials(dataplane_username={_REDACTED!r}, dataplane_password={_REDACTED!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(field, _REDACTED) for field in self.__struct_fields__]


class _UnusableValueError(Exception):
    pass


def decode_credentials(secret: Mapping[str, Any], *, source: str = "") -> Credentials:
    """Return the credentials in *secret*, a Kubernetes Secret; raises `ConfigInvalidError` with all problems.

    `stringData` goes before `data`, as in the API server.
    """
    values: dict[str, str] = {}
    problems = []
    for key in Credentials.__struct_fields__:
        try:
            values[key] = _value_of(secret, key)
        except _UnusableValueError as exc:
            message, hint = exc.args
            problems.append(Problem(message=message, source=source, path=f"data.{key}", hint=hint))
    if problems:
        raise ConfigInvalidError(problems)
    return Credentials(**values)


def _value_of(secret: Mapping[str, Any], key: str) -> str:
    plain, encoded = (_section(secret, name).get(key) for name in ("stringData", "data"))
    if plain is None and encoded is None:
        raise _UnusableValueError(f"`{key}` is missing", "the Secret needs dataplane_username and dataplane_password")
    text = plain if plain is not None else _decode(encoded)
    if not isinstance(text, str):
        raise _UnusableValueError("the value is not text", "put it in quotes")
    if not text:
        raise _UnusableValueError("the value is empty", "")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise _UnusableValueError(
            "the value contains a control character",
            "a line break at its end is usual: encode with `printf %s`, not `echo`",
        )
    if key == "dataplane_username" and ":" in text:
        raise _UnusableValueError("a user name cannot hold a colon", "")
    return text


def _section(secret: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = secret.get(name)
    return section if isinstance(section, Mapping) else {}


def _decode(encoded: object) -> str:
    if not isinstance(encoded, str):
        raise _UnusableValueError(
            "the value is not text", "write base64 under `data`, or plain text under `stringData`"
        )
    try:
        return base64.b64decode("".join(encoded.split()), validate=True).decode()
    # The cause would carry the value.
    except (binascii.Error, ValueError):
        raise _UnusableValueError(
            "the value is not UTF-8 text in base64", "write plain text under `stringData` instead"
        ) from None
