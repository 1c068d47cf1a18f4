"""Code generator for Jinja2 that makes literals of templates trusted text, and compiles limits into each template.

- String literals are trusted, once per module; nothing is folded at compile
  time, since a folded operation would pass for a literal.
- Every expression statement goes through `emit`, call blocks and filter
  blocks too.
- Every template and block checks the clock, and every loop also the size of
  its output.
- An import is executed once per render, not once per process.

Names that begin with `h_` belong to this generator; Jinja prefixes those of templates.
"""

# Names and parameters of the visitors are Jinja's.
# ruff: noqa: N802, ARG002

from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from haptic_trio.templating.tags import EACH, internal_name

_IMPORTS = (
    "from haptic_trio.templating.values.text import Emitted as h_Emitted",
    "from haptic_trio.templating.filters.emit import emit as h_emit, join_parts as h_join",
    "from haptic_trio.templating.tags import render_each as h_each",
    "from haptic_trio.templating.incremental.fragments import render_fragment as h_fragment",
    "from haptic_trio.templating.values.limits import clock as h_clock",
    "from haptic_trio.templating.incremental.recorder import current_recorder as h_current_run",
)
_LONGEST_PLACE = 80


class TemplateCodeGenerator(CodeGenerator):
    """Writes the Python module of one template."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.optimizer = None
        self._literals: dict[str, str] = {}
        self._loop_bodies: set[int] = set()

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        """Write the imports before the template, and its literals after it."""
        for line in _IMPORTS:
            self.writeline(line)
        super().visit_Template(node, frame)
        for text, name in self._literals.items():
            self.writeline(f"{name} = h_Emitted({text!r})")

    def write_commons(self) -> None:
        """Write the local variables that every block uses."""
        super().write_commons()
        self.writeline("h_run = h_current_run()")
        self.writeline("if h_clock() > h_run.deadline: h_run.tick()")
        self.writeline("h_look = environment.getattr")

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        """Write a text as a literal that passes the emitters, and other constants as they are."""
        if type(node.value) is str:
            self.write(self._literals.setdefault(node.value, f"h_c{len(self._literals)}"))
        else:
            super().visit_Const(node, frame)

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:
        """Write an attribute access that the sandbox answers, with its place for errors."""
        # Most objects are plain dictionaries with the field: for these without a call.
        self.write(f"(h_object[{node.attr!r}] if type(h_object := ")
        self.visit(node.node, frame)
        self.write(f") is dict and {node.attr!r} in h_object")
        self.write(f" else h_look(h_object, {node.attr!r}, {place_of(node.node)!r}))")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Write an item access that the sandbox answers, with its place for errors; slices as Jinja does."""
        if isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.getitem(")
        self.visit(node.node, frame)
        self.write(", ")
        self.visit(node.arg, frame)
        self.write(f", {place_of(node.node)!r})")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Write `~` so that the result counts as data if one of its parts does."""
        self.write("h_join((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if isinstance(node, nodes.TemplateData):
            return node.data
        if isinstance(node, nodes.Const) and type(node.value) is str:
            return node.value
        raise nodes.Impossible

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write("h_emit(")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write(f", {place_of(node)!r})")

    def visit_CallBlock(self, node: nodes.CallBlock, frame: Frame) -> None:
        """Write an `{% each %}`, or a call block whose result passes an emitter."""
        call = node.call.node
        if isinstance(call, nodes.InternalName) and call.name == EACH:
            self._visit_each(node, frame)
            return
        call_frame, macro_ref = self.macro_body(node, frame)
        self.writeline("caller = ")
        self.macro_def(macro_ref, call_frame)
        self.start_write(frame, node)
        self.write("h_emit(")
        self.visit_Call(node.call, frame, forward_caller=True)
        self.write(", 'call block')")
        self.end_write(frame)

    def _visit_each(self, node: nodes.CallBlock, frame: Frame) -> None:
        (block,) = node.body
        assert isinstance(block, nodes.Block)
        # No `h_emit`: what comes is either finished text or stands for a region, which that would not let pass.
        self.start_write(frame, node)
        self.write(f"{EACH}(")
        for argument in node.call.args:
            self.visit(argument, frame)
            self.write(", ")
        captured = frame.buffer is not None
        self.write(f"context, {self.dump_local_context(frame)}, block_{block.name}, {captured})")
        self.end_write(frame)

    def visit_FilterBlock(self, node: nodes.FilterBlock, frame: Frame) -> None:
        """Write a filter block whose result passes an emitter."""
        filter_frame = frame.inner()
        filter_frame.symbols.analyze_node(node)
        self.enter_frame(filter_frame)
        self.buffer(filter_frame)
        self.blockvisit(node.body, filter_frame)
        self.start_write(frame, node)
        self.write("h_emit(")
        self.visit_Filter(node.filter, filter_frame)
        self.write(", 'filter block')")
        self.end_write(frame)
        self.leave_frame(filter_frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        """Write a loop that is interrupted at the time limit."""
        self._loop_bodies.add(id(node.body))
        if node.test is not None:
            node.test = nodes.And(internal_name("h_run.tick()", node.lineno), node.test, lineno=node.lineno)
        super().visit_For(node, frame)

    def blockvisit(self, nodes: Any, frame: Frame) -> None:
        """Write a block; the body of a loop begins with a check of the limits."""
        if id(nodes) in self._loop_bodies:
            collected = f" or len({frame.buffer}) > h_run.piece_limit" if frame.buffer else ""
            self.writeline(f"if h_clock() > h_run.deadline{collected}: h_run.stop()")
        super().blockvisit(nodes, frame)

    def _import_common(self, node: nodes.Import | nodes.FromImport, frame: Frame) -> None:
        before, after = ("", "") if node.with_context else ("h_run.module(", ")")
        self.write(f"{before}environment.get_template(")
        self.visit(node.template, frame)
        self.write(f", {self.name!r}){after}")
        if node.with_context:
            self.write(f".make_module(context.get_all(), True, {self.dump_local_context(frame)})")


def place_of(node: nodes.Node) -> str:
    """Return the expression *node* roughly as its author wrote it."""
    text = _written(node)
    return text if len(text) <= _LONGEST_PLACE else text[:_LONGEST_PLACE] + "…"


def _written(node: nodes.Node | None) -> str:
    text = "…"
    match node:
        case nodes.Name():
            text = node.name
        case nodes.Getattr():
            text = f"{_written(node.node)}.{node.attr}"
        case nodes.Getitem():
            key = _written(node.arg) if isinstance(node.arg, nodes.Const | nodes.Name | nodes.Getattr) else "…"
            text = f"{_written(node.node)}[{key}]"
        case nodes.Filter():
            text = f"{_written(node.node)} | {node.name}"
        case nodes.Call():
            text = f"{_written(node.node)}({'…' if node.args or node.kwargs else ''})"
        case nodes.Const():
            text = repr(node.value)
        case nodes.Concat():
            text = " ~ ".join(_written(part) for part in node.nodes)
    return text
