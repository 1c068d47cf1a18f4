"""The reference of all fields as Markdown, made from the model: `python -m tools.docgen.configuration`.

With a path as argument, replaces everything below the marker line of that
file; without one, prints the reference to standard output.
"""

import ast
import inspect as source_of
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from haptic_trio.config import model
from haptic_trio.config.encode import encode_value

MARKER = "<!-- Below this line the page is made from the model: python -m tools.docgen.configuration FILE -->"

_WORDS: dict[type[inspect.Type], str] = {
    inspect.AnyType: "anything",
    inspect.BoolType: "true or false",
    inspect.CustomType: "duration",
    inspect.StrType: "text",
    inspect.StructType: "section",
    inspect.UnionType: "section",
}


def reference() -> str:
    """Return the Markdown text: one section for each part of the configuration, one table row for each field."""
    root = inspect.type_info(model.Config)
    assert isinstance(root, inspect.StructType)
    sections = [describe_struct(f"`{path}`" if path else "Top level", struct) for path, struct in structs_in("", root)]
    return "\n\n".join(sections) + "\n"


def write_reference(page: Path) -> None:
    """Replace what stands below the marker line in *page*; raises `ValueError` where there is no marker."""
    replace_below(page, MARKER, reference())


def replace_below(page: Path, line: str, text: str) -> None:
    """Replace what stands below *line* in *page* by *text*; raises `ValueError` where there is no such line."""
    head, marker, _ = page.read_text("utf-8").partition(line)
    if not marker:
        raise ValueError(f"{page} has no marker line")
    page.write_text(f"{head}{line}\n\n{text}", "utf-8")


def structs_in(path: str, struct: inspect.StructType) -> Iterator[tuple[str, inspect.StructType]]:
    """Yield *struct* and the structs within, each with its path; mappings by name have `<name>` in it, lists `[]`."""
    yield path, struct
    for field in struct.fields:
        inner = f"{path}.{field.encode_name}" if path else field.encode_name
        kind = _without_none(field.type)
        if isinstance(kind, inspect.DictType):
            inner, kind = f"{inner}.<name>", kind.value_type
        elif isinstance(kind, inspect.ListType):
            inner, kind = f"{inner}[]", kind.item_type
        if isinstance(kind, inspect.StructType):
            yield from structs_in(inner, kind)


def describe_struct(title: str, struct: inspect.StructType) -> str:
    """Return a section of Markdown with a table of the fields of *struct*, without its tag."""
    meanings = _field_docs(struct.cls)
    rows = [
        f"| `{field.encode_name}` | {_type(field.type)} | {_default(field)} | {cell(meanings[field.name])} |"
        for field in struct.fields
    ]
    table = ["| Field | Type | Default | Meaning |", "|---|---|---|---|", *rows]
    return "\n".join([f"## {title}", "", source_of.cleandoc(struct.cls.__doc__ or ""), "", *table])


def _field_docs(cls: type) -> dict[str, str]:
    """Return the strings below the fields of *cls* and its bases; they do not exist at run time."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("haptic_trio."):
            docs |= _docs_in(base.__module__).get(base.__name__, {})
    return docs


@cache
def _docs_in(module: str) -> dict[str, dict[str, str]]:
    docs: dict[str, dict[str, str]] = {}
    for node in ast.parse(source_of.getsource(sys.modules[module])).body:
        if isinstance(node, ast.ClassDef):
            fields = docs.setdefault(node.name, {})
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
                    match after:
                        case ast.Expr(value=ast.Constant(value=str(text))):
                            fields[before.target.id] = text
    return docs


def _without_none(kind: inspect.Type) -> inspect.Type:
    if isinstance(kind, inspect.UnionType) and not _is_choice(kind):
        return next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    return kind


def _is_choice(kind: inspect.UnionType) -> bool:
    return all(isinstance(member, inspect.StructType) for member in kind.types)


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


def cell(text: str) -> str:
    """Return *text* as the content of a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_reference(Path(sys.argv[1]))
    else:
        sys.stdout.write(reference())
