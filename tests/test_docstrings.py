"""Docstrings of the package state contracts: a subject first, the errors that are raised, and when a task ends."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import haptic_trio

PACKAGE = Path(haptic_trio.__file__).parent
QUESTIONS = re.compile(r"(What|Which|How|Who|Whom|Whose|Where|Whatever|Everything|Anything|Nothing) ")
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
COMMAND_LINE = ("cli/completion.py", "cli/fleet.py", "cli/new.py")
"""Modules with subcommands, whose docstrings are the help text; the command line reports their errors."""
ENDS = ("cancel", "until", "ends", "and end", "return")


@cache
def parse_modules() -> tuple[tuple[str, ast.Module], ...]:
    """Return the path within the package and the syntax tree of each module."""
    return tuple(
        (str(file.relative_to(PACKAGE)), ast.parse(file.read_text())) for file in sorted(PACKAGE.rglob("*.py"))
    )


def public_functions(node: ast.Module | ast.ClassDef) -> Iterator[Function]:
    """Yield the public functions of a module and the public methods of its public classes."""
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from public_functions(child)
        elif isinstance(child, Function) and not child.name.startswith("_"):
            yield child


def raised_errors(node: ast.AST) -> Iterator[str]:
    """Yield the names of the errors that *node* raises itself, not in nested functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda):
            continue
        if isinstance(child, ast.Raise) and child.exc is not None:
            exception = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            yield ast.unparse(exception).rpartition(".")[2]
        yield from raised_errors(child)


def project_errors() -> frozenset[str]:
    """Return the names of the public error classes of the package."""
    return frozenset(
        node.name
        for _, module in parse_modules()
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and not node.name.startswith("_")
    )


def test_docstrings_of_classes_functions_and_attributes_begin_with_a_subject() -> None:
    asking = [
        f"{path}:{node.lineno}"
        for path, module in parse_modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and QUESTIONS.match(node.value.value)
    ]

    assert asking == [], "begin with a noun phrase or a verb, not with a question word"


def test_public_functions_and_methods_have_a_docstring() -> None:
    silent = [
        f"{path}:{function.lineno} {function.name}"
        for path, module in parse_modules()
        for function in public_functions(module)
        if not ast.get_docstring(function)
        and not any(ast.unparse(one).endswith((".setter", "overload")) for one in function.decorator_list)
    ]

    assert silent == []


def test_docstrings_name_the_errors_of_the_package_that_a_function_raises() -> None:
    known = project_errors()

    unnamed = [
        f"{path}:{function.lineno} {function.name}: {error}"
        for path, module in parse_modules()
        if path not in COMMAND_LINE
        for function in public_functions(module)
        for error in sorted(set(raised_errors(function)) & known)
        if not re.search(r"\b[Rr]ais|\breject|\bfail|Error\b", ast.get_docstring(function) or "")
        and error not in (ast.get_docstring(module) or "")
    ]

    assert unnamed == [], "say `raises …Error` in the docstring of the function, or of the module if all raise it"


def test_docstrings_of_tasks_say_when_they_end() -> None:
    endless = [
        f"{path}:{function.lineno} {function.name}"
        for path, module in parse_modules()
        for function in public_functions(module)
        if isinstance(function, ast.AsyncFunctionDef)
        and function.name.startswith(("run", "serve", "follow"))
        and not (ast.get_docstring(function) or "").startswith("See `")
        and not any(word in (ast.get_docstring(function) or "").lower() for word in ENDS)
    ]

    assert endless == [], "say `until cancelled`, `until …` or `ends when …`"
