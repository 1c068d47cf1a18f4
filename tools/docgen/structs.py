"""References of messages and of the console's protocol as Markdown, made from their structs."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Final

import msgspec

from haptic_trio import channels, messages
from haptic_trio.console import api, protocol, stream
from haptic_trio.dataplane import figures
from haptic_trio.explain import answers, requests, route_list
from tools.docgen.configuration import cell
from tools.docgen.markdown import table

_MESSAGES_HEAD = """\
# Messages

After reading this page you can read the events of a controller in `haptic-trio debug events`, and know who sends each.
These are the messages between its components; the commentator receives each of them as an event and logs it. Messages
are immutable. Times are seconds of the controller's monotonic clock.

## Channels

Who sends on each channel, who receives, how much it holds, and what happens when it is full. *latest* is state: a late
joiner finds the present value there, and nothing is replayed. *counted*: what does not fit is counted, and reported.
"""
_CONSOLE_HEAD = f"""\
# The console's protocol

After reading this page you can write a program that reads the state of a controller from its console.

The protocol has version {protocol.PROTOCOL}. It uses a websocket at `/console/stream` of the admin port; each message
is one JSON text.
[The debug console](../console.md) says how to reach it and what it costs.
"""
_PLAIN: Final = {
    "str": "text",
    "int": "number",
    "float": "number",
    "bool": "true or false",
    "Any": "anything",
    "None": "null",
}


class Field(msgspec.Struct, frozen=True):
    """A field as its source has it."""

    name: str
    kind: str
    default: str
    meaning: str


def messages_page() -> str:
    """Return the page of messages."""
    ends = list(_channel_rows())
    rows = [(f"`{name}`", carries, way, full) for name, carries, way, full in ends]
    sections = [_MESSAGES_HEAD, table(("Channel", "Carries", "From, to", "Size, when full"), rows)]
    for cls, fields in structs_of(messages):
        ways = [f"`{name}`, {way}" for name, carries, way, _full in ends if cls.__name__ in carries.split(", ")]
        travels = f"\nTravels by {'; '.join(ways)}.\n" if ways else ""
        sections.append(_describe(cls, fields, travels))
    sections += [_describe_choices(cls) for cls in _enums_of(messages)]
    return "\n".join(sections)


def console_page() -> str:
    """Return the page of the protocol."""
    talk = inspect.cleandoc(inspect.cleandoc(stream.__doc__ or "").split("\n\n")[1])
    limits = (
        f"A viewer without a valid hello within {stream.HELLO_LIMIT:g} seconds is disconnected with code"
        f" {stream.UNAUTHORIZED}, a viewer beyond {stream.MOST_VIEWERS} with {stream.BUSY}. Topics of a subscription"
        f" are read every *interval* seconds (at least {stream.SHORTEST_INTERVAL:g}); after {stream.ALIVE:g} seconds"
        " without a message the console sends `now`."
        " [The console](../console.md#the-protocol-version-1) describes the topics; these are their structs."
    )
    resources = inspect.cleandoc(inspect.cleandoc(api.__doc__ or "").split("\n\n")[1])
    rules = " ".join(inspect.cleandoc(api.__doc__ or "").split("\n\n")[2].split())
    structs = [
        *_only(stream, "Hello", "Request"),
        *structs_of(protocol),
        *_only(figures, "ProcessFigures", "ServerFigures", "BackendFigures"),
        *_only(route_list, "Route"),
        *_only(answers, "ServedCertificate", "SearchAnswer", "Hit", "Line", "MadeBy", "Named"),
        *structs_of(requests),
    ]
    return "\n".join(
        [
            _CONSOLE_HEAD,
            f"```text\n{talk}\n```\n\n{limits}\n",
            f"## Over HTTP\n\n```text\n{resources}\n```\n\n{rules}\n",
            *(_describe(cls, fields, "") for cls, fields in structs),
        ]
    )


def structs_of(module: ModuleType) -> Iterator[tuple[type, list[Field]]]:
    """Yield the structs that *module* defines or re-exports, in its order, with their fields."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and node.module and any(one.asname == one.name for one in node.names):
            yield from _only(importlib.import_module(node.module), *(one.name for one in node.names))
        elif isinstance(node, ast.ClassDef):
            cls = getattr(module, node.name)
            if issubclass(cls, msgspec.Struct):
                yield cls, list(_fields_in(node))


def _only(module: ModuleType, *names: str) -> list[tuple[type, list[Field]]]:
    return [(cls, fields) for cls, fields in structs_of(module) if cls.__name__ in names]


def _fields_in(node: ast.ClassDef) -> Iterator[Field]:
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        default = ast.unparse(statement.value) if statement.value is not None else ""
        yield Field(statement.target.id, _words(statement.annotation), default, _text_in(after))


def _text_in(statement: ast.stmt | None) -> str:
    """Return the text that stands below a field, if that is what *statement* is."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""


def _words(annotation: ast.expr) -> str:
    """Return a type as a reader of JSON would call it; names of structs stay."""
    match annotation:
        case ast.Name(id=name) | ast.Constant(value=str(name)):
            return _PLAIN.get(name, f"`{name}`")
        case ast.Constant(value=None):
            return "null"
        case ast.BinOp(left=left, right=right):
            return f"{_words(left)} or {_words(right)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[inner, *_others])):
            return f"list of {_words(inner)}"
        case ast.Subscript(value=ast.Name(id="Mapping" | "dict"), slice=ast.Tuple(elts=[_key, inner])):
            return f"mapping of text to {_words(inner)}"
        case other:
            return f"`{ast.unparse(other)}`"


def _describe(cls: type, fields: list[Field], travels: str) -> str:
    rows = [
        (f"`{field.name}`", cell(field.kind), f"`{cell(field.default)}`" if field.default else "", cell(field.meaning))
        for field in fields
    ]
    shown = table(("Field", "Type", "Default", "Meaning"), rows) if rows else ""
    text = "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(cls.__doc__ or "").split("\n\n"))
    return f"## {cls.__name__}\n\n{text}\n{travels}\n{shown}"


def _enums_of(module: ModuleType) -> Iterator[ast.ClassDef]:
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef) and not issubclass(getattr(module, node.name), msgspec.Struct):
            yield node


def _describe_choices(node: ast.ClassDef) -> str:
    lines = []
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        match statement:
            case ast.Assign(value=ast.Constant(value=str(choice))):
                meaning = _text_in(after)
                lines.append(f"- `{choice}`: {meaning}" if meaning else f"- `{choice}`")
    return f"## {node.name}\n\n{ast.get_docstring(node)}\n\n" + "\n".join(lines) + "\n"


def _channel_rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the table in the docstring of `channels`, in which a row may take several lines."""
    row: list[str] = []
    lines = [line for line in (channels.__doc__ or "").splitlines() if line.startswith("|")]
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] and row:
            yield row[0], row[1], row[2], row[3]
            row = []
        row = [f"{before} {more}".strip() for before, more in zip(row, cells, strict=True)] if row else cells
    yield row[0], row[1], row[2], row[3]
