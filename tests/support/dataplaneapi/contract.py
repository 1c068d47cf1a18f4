"""The published contract of the Data Plane API: what a request may be, and what an answer looks like.

`dataplaneapi_contract.json` is extracted from the API's OpenAPI document:
of each operation that is used the parameters, the kind of body, the schema of
a JSON body, and those of JSON answers.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

CONTRACT: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("contract.json").read_text())["operations"]
_PATTERNS = {name: re.compile(re.sub(r"\\{([a-z_]+)\\}", r"(?P<\1>[^/]+)", re.escape(name))) for name in CONTRACT}
_IDENTITY = frozenset({"name", "address", "port"})
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


class Sent(NamedTuple):
    """A request."""

    method: str
    path: str
    """As it was sent, below `/v3`."""
    query: Mapping[str, str]
    content_type: str
    body: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def find_operation(method: str, path: str) -> str | None:
    """Return the operation that a request is, such as `GET /info`; None for none."""
    # A path without parameters goes before one with them.
    found = [name for name, pattern in _PATTERNS.items() if pattern.fullmatch(f"{method} {path}")]
    return min(found, key=lambda name: name.count("{"), default=None)


def check_request(sent: Sent) -> Iterator[str]:
    """Yield what of *sent* the contract does not provide for."""
    name = find_operation(sent.method, sent.path)
    if name is None:
        yield str(sent)
        return
    operation = CONTRACT[name]
    match = _PATTERNS[name].fullmatch(str(sent))
    assert match is not None
    for key, value in match.groupdict().items():
        yield from _within(check_value(unquote(value), operation["path"][key]), f"{sent} {key}")
    for key, value in sent.query.items():
        if key not in operation["query"]:
            yield f"{sent}?{key}"
        else:
            yield from _within(_check_word(value, operation["query"][key]), f"{sent}?{key}")
    missing = [key for key, one in operation["query"].items() if one.get("required") and key not in sent.query]
    yield from (f"{sent}: {key} is missing" for key in missing)
    kind = sent.content_type.partition(";")[0].replace("multipart/form-data", "upload")
    if kind != operation["body"]:
        yield f"{sent}: {kind or 'no body'}"
    elif "schema" in operation:
        yield from _within(check_value(json.loads(sent.body), operation["schema"], writes=True), str(sent))


def check_answer(sent: Sent, status: int, content_type: str, body: bytes) -> Iterator[str]:
    """Yield in what the answer to *sent* is not what the contract says."""
    name = find_operation(sent.method, sent.path)
    schema = CONTRACT[name].get("answers", {}).get(str(status)) if name is not None else None
    if schema is not None and content_type.startswith("application/json"):
        yield from _within(check_value(json.loads(body), schema), f"{sent}: {status}")


def check_value(value: Any, schema: Mapping[str, Any], *, writes: bool = False) -> Iterator[str]:
    """Yield in what *value* is not what *schema* says; what the API alone may set is one when it *writes* that.

    Lists may be null: so the API writes empty ones. A server's name, address
    and port are marked as the API's own, and have to be given all the same. What
    it answers has words that its own lists do not, such as the state of a
    server that is half up.
    """
    if value is None and (schema.get("x-nullable") or schema.get("type") == "array"):
        return
    expected = _TYPES[schema["type"]]
    if not isinstance(value, expected) or (isinstance(value, bool) and schema["type"] != "boolean"):
        yield f"{value!r} is no {schema['type']}"
        return
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{value!r} does not match {schema['pattern']}"
    if writes and "enum" in schema and value not in schema["enum"]:
        yield f"{value!r} is none of {schema['enum']}"
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{value} is out of range"
    if isinstance(value, list):
        for item in value:
            yield from check_value(item, schema["items"], writes=writes)
    if isinstance(value, dict):
        yield from _check_fields(value, schema, writes=writes)


def _check_fields(value: Mapping[str, Any], schema: Mapping[str, Any], *, writes: bool) -> Iterator[str]:
    known = schema.get("properties", {})
    yield from (f"{key} is missing" for key in schema.get("required", ()) if key not in value)
    for key, item in value.items():
        if key not in known:
            yield f"{key} is not known"
        elif writes and known[key].get("readOnly") and key not in _IDENTITY:
            yield f"{key} is the API's"
        else:
            yield from _within(check_value(item, known[key], writes=writes), key)


def _check_word(word: str, schema: Mapping[str, Any]) -> Iterator[str]:
    match schema["type"]:
        case "integer":
            value: Any = int(word) if word.isdecimal() else word
        case "boolean":
            value = {"true": True, "false": False}.get(word, word)
        case _:
            value = word
    return check_value(value, schema, writes=True)


def _within(faults: Iterator[str], where: str) -> Iterator[str]:
    return (f"{where}: {fault}" for fault in faults)
