"""The schema of the chart's values, as paths."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from tests.chart.support.rendering import CHART

Schema: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str, ...]

_SCHEMA: Final[Schema] = json.loads((CHART / "values.schema.json").read_text())
ANY_KEY: Final = "any"
"""Stands for a key of a mapping whose keys the schema does not list."""


def _resolved(schema: Schema) -> Schema:
    name = schema.get("$ref")
    if name is None:
        return schema
    referenced = _resolved(_SCHEMA["$defs"][name.rpartition("/")[2]])
    return {**referenced, **{key: value for key, value in schema.items() if key != "properties"}}


def fields_of(schema: Schema = _SCHEMA, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """Return path and schema of each value that is no mapping with listed keys."""
    for name, inner in schema["properties"].items():
        field = _resolved(inner) if isinstance(inner, dict) else {}
        if "properties" in field:
            yield from fields_of(field, (*path, name))
        else:
            yield (*path, name), field


def texts_of() -> Iterator[tuple[Path, Any]]:
    """Return each place for a free text: its path, and a function that wraps the text into the value."""
    for path, schema in fields_of():
        yield from _texts_at(path, schema)


def _texts_at(path: Path, schema: Schema) -> Iterator[tuple[Path, Any]]:
    items, values = _resolved(schema.get("items") or {}), schema.get("additionalProperties")
    inner = _resolved(values) if isinstance(values, dict) else {}
    if _is_text(schema):
        yield path, lambda text: text
    elif _is_text(items):
        yield path, lambda text: [text]
    elif _is_text(inner):
        yield path, lambda text: {ANY_KEY: text}
    elif "properties" in inner:
        for below, one in fields_of(inner, (*path, ANY_KEY)):
            yield from _texts_at(below, one)


def _is_text(schema: Schema) -> bool:
    if "enum" in schema:
        return False
    kinds = schema.get("type", ())
    choices = [_resolved(each) for each in schema.get("anyOf", ())]
    return "string" in kinds or any(_is_text(each) for each in choices)
