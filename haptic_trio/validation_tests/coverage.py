"""Template coverage: lines and branches that no test rendered.

Lines and branches are those of the compiled template that come from a line
of its source: text between two tags counts with the line it begins on. A
branch is an `if`, an `elif`, or the condition of a loop, which must have been
true and false, or a loop, which must have been entered, and not, where it has
an `else`. An expression counts as a whole, whatever is decided within it.
"""

import ast
import re
from collections.abc import Iterator
from typing import Final

import msgspec
from jinja2 import Template

from haptic_trio.validation_tests.tracing import TemplateTracer

_VARIABLE: Final = re.compile(r"l_\d+_")
_TEMPORARY: Final = re.compile(r"t_\d+")


class Branch(msgspec.Struct, frozen=True, order=True):
    """A branch that no test takes."""

    line: int
    way: str
    """`true`, `false`, `entered` or `empty`."""


class TemplateCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """One template; line numbers are of its source."""

    name: str
    lines: int
    """Number of lines that can be rendered."""
    missing_lines: tuple[int, ...]
    branches: int
    """Number of branches."""
    missing_branches: tuple[Branch, ...]

    @property
    def covered(self) -> float:
        """The share of lines and branches that tests render, 0 to 1."""
        total = self.lines + self.branches
        return 1 - (len(self.missing_lines) + len(self.missing_branches)) / total if total else 1.0


def measure(tracer: TemplateTracer) -> list[TemplateCoverage]:
    """Return the coverage of all template sets with rendered templates, sorted by name."""
    environments = {id(one.environment): one.environment for one in tracer.templates.values()}
    known: dict[str, Template] = {}
    for environment in environments.values():
        known = {**getattr(environment, "compiled", {}), **known}
    known.update(tracer.templates)
    return [_measure(name, known[name], tracer) for name in sorted(known)]


def total(found: list[TemplateCoverage]) -> float:
    """Return the share of all lines and branches that tests render, 0 to 1."""
    everything = sum(one.lines + one.branches for one in found)
    missing = sum(len(one.missing_lines) + len(one.missing_branches) for one in found)
    return 1 - missing / everything if everything else 1.0


def _measure(name: str, template: Template, tracer: TemplateTracer) -> TemplateCoverage:
    executed, arcs = tracer.executed.get(name, set()), tracer.arcs.get(name, set())
    origins = {compiled: line for line, compiled in template.debug_info}
    all_lines = set(origins.values())
    rendered = {line for compiled, line in origins.items() if compiled in executed}
    ways: set[Branch] = set()
    gone: set[Branch] = set()
    for node, at in _branches(template, name):
        line = template.get_corresponding_lineno(at)
        inside, past = _ways(node)
        # Leaving a loop is not a branch: every loop ends.
        ways |= {Branch(line, way) for way in (inside, past) if way != "left"}
        ends = [end for start, end in arcs if start == node.lineno]
        gone |= {Branch(line, inside if end == node.body[0].lineno else past) for end in ends}
    # Unreached lines are reported as lines, not as branches.
    missing = {branch for branch in ways - gone if branch.line in rendered}
    return TemplateCoverage(
        name=name,
        lines=len(all_lines),
        missing_lines=tuple(sorted(all_lines - rendered)),
        branches=len(ways),
        missing_branches=tuple(sorted(missing)),
    )


def _ways(node: ast.If | ast.For) -> tuple[str, str]:
    """Return the names of the two ways at *node*: into it, and past it."""
    if isinstance(node, ast.For):
        return "entered", "left"
    return ("empty", "left") if _is_else_of_loop(node) else ("true", "false")


def _branches(template: Template, name: str) -> Iterator[tuple[ast.If | ast.For, int]]:
    """Yield the branches of the compiled template with their lines."""
    source = getattr(template.environment, "sources", {}).get(name)
    if source is None:
        return
    for parent in ast.walk(ast.parse(template.environment.compile(source, name, None, raw=True))):
        loop = 0
        for node in ast.iter_child_nodes(parent):
            if not isinstance(node, ast.If | ast.For) or _is_managed(node):
                continue
            if isinstance(node, ast.For):
                loop = node.lineno
            yield node, loop if _is_else_of_loop(node) and loop else node.lineno


def _is_else_of_loop(node: ast.If | ast.For) -> bool:
    """Whether *node* is the compiled `else` of a loop, which tests a generated variable."""
    return (
        isinstance(node, ast.If) and isinstance(node.test, ast.Name) and _TEMPORARY.fullmatch(node.test.id) is not None
    )


def _is_managed(node: ast.If | ast.For) -> bool:
    """Whether *node* was generated and is not part of the template source."""
    if isinstance(node, ast.For):
        return any(isinstance(part, ast.Name) and part.id in {"event", "fiter"} for part in (node.target, node.iter))
    match node.test:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            # A template variable, or the flag of an entered loop.
            return _VARIABLE.match(name) is None and _TEMPORARY.fullmatch(name) is None
        case ast.Compare(comparators=[ast.Name(id="missing")]):
            return True
    return any(isinstance(part, ast.Name) and part.id in {"h_clock", "parent_template"} for part in ast.walk(node.test))


def line_ranges(lines: tuple[int, ...]) -> str:
    """Return *lines* as ranges, such as `3-5, 9`."""
    ranges: list[list[int]] = []
    for line in lines:
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
