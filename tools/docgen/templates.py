"""The reference of what templates may use as Markdown, made from signatures and docstrings."""

import inspect
import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Final

from jinja2 import filters, nodes, tests

from haptic_trio.config.libraries import library_names, load_library
from haptic_trio.config.model import Snippet, Template
from haptic_trio.httpstore.fetches import HttpView
from haptic_trio.templating import functions
from haptic_trio.templating.filters import registry as own
from haptic_trio.templating.filters.registry import FILTERS
from haptic_trio.templating.functions import GLOBALS
from haptic_trio.templating.sandbox import TemplateEnvironment
from haptic_trio.templating.views import ENGINE_METHODS, ResourceView
from tools.docgen.configuration import cell
from tools.docgen.markdown import doc_of, table

_HEAD = """\
# Filters, functions and macros

After reading this page you can choose the filter, function or macro for an output. The tags are in
[templates](../templates.md). Arguments are written as in Python, without the value before the `|` of a filter. *Data*
is text that comes from objects. It becomes output through an emitter, or directly if it has no special characters. If
an emitter cannot express a value, it rejects it, and the object is quarantined.
"""
_JINJA: Final = "https://jinja.palletsprojects.com/en/stable/templates/"
_STARS: Final = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
_GIVEN: Final = frozenset({"environment", "context", "eval_ctx"})


def templates_page() -> str:
    """Return the page."""
    parts = [_HEAD, *_filters(), *_tests(), *_functions(), *_macros()]
    return "\n".join(parts)


def _filters() -> Iterator[str]:
    groups: dict[str, dict[str, Any]] = {}
    for name, made in FILTERS.items():
        module = inspect.getmodule(made)
        title = (module.__doc__ or "") if module not in (None, own) and _is_managed(made) else ""
        kept = not title and not _is_managed(made)
        groups.setdefault("Jinja" if kept else title, {})[name] = made
    plain, foreign = groups.pop("", {}), groups.pop("Jinja", {})
    for title, entries in groups.items():
        # What a module is about, as far as the first pause.
        yield _section(re.split(r"[:.\n]", title)[0], "", entries, skip=1)
    yield _section("Filters for text and numbers", "", plain, skip=1)
    bound = ", ".join(f"`{name}`" for name in sorted(foreign))
    yield (
        f"## Filters of Jinja\n\nAs [Jinja documents them]({_JINJA}#list-of-builtin-filters): {bound}.\n\n"
        "Those that give one item after the other there give lists here. What they make of data is data.\n"
    )


def _is_managed(function: Any) -> bool:
    # Wrappers of Jinja's are documented there.
    return (inspect.getmodule(function) or filters).__name__.startswith("haptic_trio.") and bool(function.__doc__)


def _tests() -> Iterator[str]:
    known = TemplateEnvironment({}, {}).tests
    own = {name: test for name, test in known.items() if name not in tests.TESTS}
    if own:
        yield _section("Tests", "", own, skip=1)
    named = ", ".join(f"`{name}`" for name in sorted(set(known) - set(own)) if name.isidentifier())
    yield (
        "## Tests of Jinja\n\n`{% if x is NAME %}`, as"
        f" [Jinja documents them]({_JINJA}#list-of-builtin-tests): {named}.\n"
    )


def _functions() -> Iterator[str]:
    plain = {name: value for name, value in GLOBALS.items() if inspect.isfunction(value)}
    named = ("`snippets(pattern)`", "The names of all snippets that match, by priority and then by name.")
    yield f"## Functions\n\n{table(('Function', ''), sorted([*_rows(plain, skip=0), named]))}"
    classes = {name: value for name, value in GLOBALS.items() if inspect.isclass(value)}
    yield _section("Functions: state of a template", "", classes, skip=0)
    yield _section(
        "`resources.NAME`",
        "Lookups in watched resources; each is recorded, and the fragment renders again when its result changes.",
        _methods(ResourceView, without=ENGINE_METHODS),
        skip=1,
    )
    yield _section(
        "`http`",
        "Contents fetched over HTTP, recorded like lookups; see [http-content.md](../http-content.md).",
        _methods(HttpView),
        skip=1,
    )
    for name, value in GLOBALS.items():
        if not inspect.isfunction(value) and not inspect.isclass(value):
            yield _section(f"`{name}`", doc_of(type(value)), _methods(type(value)), skip=1)


def _methods(cls: type, without: Container[str] = ()) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(cls).items()
        if inspect.isfunction(value) and not name.startswith("_") and name not in without
    }


def _section(title: str, lead: str, entries: Mapping[str, Any], *, skip: int) -> str:
    head = f"## {title}\n\n" + (f"{lead}\n\n" if lead else "")
    return head + table(("Name", ""), sorted(_rows(entries, skip=skip)))


def _rows(entries: Mapping[str, Callable[..., Any]], *, skip: int) -> Iterator[tuple[str, str]]:
    for name, function in entries.items():
        yield f"`{cell(name + _arguments(function, skip))}`", cell(doc_of(function))


def _arguments(function: Callable[..., Any], skip: int) -> str:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return "()"
    shown = [parameter for parameter in parameters if parameter.name not in _GIVEN][skip:]
    if not shown and skip and parameters[0].name != "self":
        return ""
    return f"({', '.join(map(_argument, shown))})"


def _argument(parameter: inspect.Parameter) -> str:
    star = _STARS.get(parameter.kind.name, "")
    if parameter.default is inspect.Parameter.empty:
        return f"{star}{parameter.name}"
    # A default without a readable form stands for nothing given.
    default = repr(parameter.default)
    return f"{parameter.name}={default}" if not default.startswith("<") else f"{parameter.name}=…"


def _macros() -> Iterator[str]:
    lead = (
        '`{% from "SNIPPET" import MACRO %}` brings a macro into a template. They are parts of the libraries: a snippet'
        " of yours that replaces one has to bring its macros along."
    )
    yield f"## Macros of the libraries\n\n{lead}\n"
    environment = TemplateEnvironment({}, dict(GLOBALS) | {"snippets": functions.make_snippets({})})
    rows = []
    for library in library_names():
        loaded = load_library(library)
        for name, snippet in sorted(loaded.template_snippets.items()):
            rows += [
                (f"`{cell(macro)}`", f"`{name}`", library, cell(meaning))
                for macro, meaning in _macros_in(environment, snippet)
            ]
    yield table(("Macro", "Snippet", "Library", ""), rows)


def _macros_in(environment: TemplateEnvironment, snippet: Snippet | Template) -> Iterator[tuple[str, str]]:
    lines = snippet.template.split("\n")
    for macro in environment.parse(snippet.template).find_all(nodes.Macro):
        names = [str(argument.name) for argument in macro.args]
        defaults = [_constant(default) for default in macro.defaults]
        plain = len(names) - len(defaults)
        given = [*names[:plain], *(f"{name}={value}" for name, value in zip(names[plain:], defaults, strict=True))]
        yield f"{macro.name}({', '.join(given)})", _comment_above(lines, macro.lineno)


def _constant(node: nodes.Expr) -> str:
    return repr(node.value) if isinstance(node, nodes.Const) else "…"


def _comment_above(lines: list[str], line: int) -> str:
    """Return the comment that ends right above *line*, or that begins the template."""
    above = "\n".join(lines[: line - 1]).rstrip()
    found = re.search(r"\{#-?(?P<text>(?:(?!#\}).)*)-?#\}\Z", above, re.DOTALL)
    return " ".join(found["text"].split()) if found else ""
