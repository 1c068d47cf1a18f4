"""The reference of all fields as Markdown, made from the model: `python -m haptic_trio.config.reference`.

With a path as argument, everything below the marker line of that file is
written anew; without one, the reference goes to standard output.
"""

import ast
import inspect as source_of
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from haptic_trio.config import model
from haptic_trio.config.encode import encode_value

MARKER = "<!-- Below this line the page is made from the model: python -m haptic_trio.config.reference FILE -->"

_WORDS: dict[type[inspect.Type], str] = {
    inspect.AnyType: "anything",
    inspect.BoolType: "true or false",
    inspect.CustomType: "duration",
    inspect.StrType: "text",
    inspect.StructType: "section",
}


def reference() -> str:
    """Return the Markdown text: one section for each part of the configuration, one table row for each field."""
    docs = _field_docs()
    root = inspect.type_info(model.Config)
    assert isinstance(root, inspect.StructType)
    sections = [_section(path, struct, docs) for path, struct in _structs("", root)]
    return "\n\n".join(sections) + "\n"


def write_reference(page: Path) -> None:
    """Replace what stands below the marker line in *page*; raises `ValueError` where there is no marker."""
    head, marker, _ = page.read_text("utf-8").partition(MARKER)
    if not marker:
        raise ValueError(f"{page} has no marker line")
    page.write_text(f"{head}{MARKER}\n\n{reference()}", "utf-8")


def _structs(path: str, struct: inspect.StructType) -> Iterator[tuple[str, inspect.StructType]]:
    """Yield *struct* and the structs within, each with its path; mappings by name have `<name>` in it."""
    yield path, struct
    for field in struct.fields:
        inner = f"{path}.{field.encode_name}" if path else field.encode_name
        kind = _without_none(field.type)
        if isinstance(kind, inspect.DictType):
            inner, kind = f"{inner}.<name>", kind.value_type
        if isinstance(kind, inspect.StructType):
            yield from _structs(inner, kind)


def _section(path: str, struct: inspect.StructType, docs: dict[str, dict[str, str]]) -> str:
    meanings = docs[struct.cls.__name__]
    rows = [
        f"| `{field.encode_name}` | {_type(field.type)} | {_default(field)} | {_cell(meanings[field.name])} |"
        for field in struct.fields
    ]
    title = f"`{path}`" if path else "Top level"
    table = ["| Field | Type | Default | Meaning |", "|---|---|---|---|", *rows]
    return "\n".join([f"## {title}", "", struct.cls.__doc__ or "", "", *table])


def _field_docs() -> dict[str, dict[str, str]]:
    """Return the strings below the fields, by class and field; they do not exist at run time."""
    docs: dict[str, dict[str, str]] = {}
    for node in ast.parse(source_of.getsource(model)).body:
        if isinstance(node, ast.ClassDef):
            fields = docs.setdefault(node.name, {})
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
                    match after:
                        case ast.Expr(value=ast.Constant(value=str(text))):
                            fields[before.target.id] = text
    return docs


def _without_none(kind: inspect.Type) -> inspect.Type:
    if isinstance(kind, inspect.UnionType):
        return next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    return kind


def _type(kind: inspect.Type) -> str:
    match _without_none(kind):
        case inspect.Metadata(type=inner):
            text = _type(inner)
        case inspect.EnumType(cls=choices):
            text = " or ".join(f"`{choice.value}`" for choice in choices)
        case inspect.DictType(value_type=value):
            text = f"mapping of name to {_type(value)}"
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            text = f"list of {_type(item)}"
        case inspect.IntType(ge=low, le=high):
            limits = f", {low} to {high}" if high is not None else f", at least {low}" if low is not None else ""
            text = f"number{limits}"
        case other:
            text = _WORDS[type(other)]
    return text


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    value: Any = field.default
    if value is None or isinstance(value, msgspec.Struct):
        return ""
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if value in ("", ()):
        return "empty"
    plain = encode_value(value)
    return f"`{plain}`" if isinstance(plain, str) else f"`{msgspec.json.encode(plain).decode()}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_reference(Path(sys.argv[1]))
    else:
        sys.stdout.write(reference())
