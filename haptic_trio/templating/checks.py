"""Static checks of templates: reports every problem of every template before any is rendered."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from jinja2 import TemplateSyntaxError, nodes

from haptic_trio.errors import Problem
from haptic_trio.templating.sandbox import TemplateAnalysis, TemplateEnvironment
from haptic_trio.templating.tags import SYNTAX, names_of, outer_loops
from haptic_trio.templating.values.faults import did_you_mean
from haptic_trio.templating.values.marks import strip_marks
from haptic_trio.templating.values.report import excerpt

_ALWAYS_DEFINED: Final = frozenset({"caller", "loop", "self", "super", "varargs", "kwargs"})
_ABSENT_FILTERS: Final = {
    "safe": "text is trusted through emitters only: | word, | logformat, | name …",
    "escape": "use an emitter: | word, | logformat, | map_value …",
    "e": "use an emitter: | word, | logformat, | map_value …",
    "random": "equal input must give equal output",
    "fallback": "use | default(…)",
}
_FILTERS_BY_NAME: Final = {"map": 0}
_TESTS_BY_NAME: Final = {"select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}
_MOST_KNOWN: Final = 1_000
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class _Known(NamedTuple):
    """A template without problems. Depends on its name and source only."""

    compiled: TemplateAnalysis
    assigned: frozenset[str]
    """Names that other templates may call."""
    called: frozenset[str]
    """Names of functions that must exist."""
    named: tuple[tuple[str, ...], ...]
    """Names of templates: one of each tuple must exist."""


# A changed configuration is checked, then loaded, then rendered with, and most of its templates are those of the one
# before: these are not even parsed again.
_known: Final[dict[tuple[str, str], _Known]] = {}


class TemplateChecker:
    """Parses and compiles the templates of an environment and collects problems."""

    def __init__(self, environment: TemplateEnvironment) -> None:
        self._environment = environment
        self._trees: dict[str, nodes.Template] = {}
        self._nodes: dict[str, list[nodes.Node]] = {}
        """All nodes of each tree: to walk through it takes longer than all that is looked for."""
        self.problems: list[Problem] = []

    def compile_all(self) -> None:
        """Fill `environment.compiled`; every fault found on the way is in `problems`."""
        sources = self._environment.sources
        known = {name: found for name, source in sources.items() if (found := _known.get((name, source))) is not None}
        named = set(self._environment.globals) | _ALWAYS_DEFINED
        for name, source in sources.items():
            if name in known:
                named |= known[name].assigned
                continue
            self._parse(name, source)
            if name in self._trees:
                named |= _assigned_names(self._nodes[name])
        for name, source in sources.items():
            if name in known:
                if self._is_fine(known[name], named):
                    self._load(name, known[name].compiled)
                    continue
                self._parse(name, source)
            if name in self._trees:
                self._check(name, named)

    def _is_fine(self, known: _Known, named: set[str]) -> bool:
        sources = self._environment.sources
        return known.called <= named and all(any(name in sources for name in names) for names in known.named)

    def _check(self, name: str, named: set[str]) -> None:
        before = len(self.problems)
        for line, message, hint in self._faults(self._nodes[name], named):
            self._report(name, line, message, hint)
        if len(self.problems) == before:
            self._compile(name, self._trees[name])

    def _parse(self, name: str, source: str) -> None:
        if strip_marks(source) != source:
            line = next(number for number, text in enumerate(source.split("\n"), 1) if strip_marks(text) != text)
            self._report(name, line, "the template contains Unicode noncharacters", "remove U+FDD0 to U+FDEF")
            return
        try:
            tree = self._trees[name] = self._environment.parse(source, name)
            self._nodes[name] = list(tree.find_all(nodes.Node))
        except TemplateSyntaxError as error:
            self._report(name, error.lineno, error.message or "syntax error", _syntax_hint(error.message or ""))
        except RecursionError:
            self._report(name, 1, "the template nests too deeply", "")
        except ValueError as error:
            # Python does not convert numbers of thousands of digits, and Jinja lets that through.
            self._report(name, 1, f"a literal cannot be read: {error}", "")

    def _compile(self, name: str, tree: nodes.Template) -> None:
        try:
            self._load(name, self._compiled(name, tree))
        except TemplateSyntaxError as error:
            self._report(name, error.lineno, error.message or "syntax error", "")
        except (SyntaxError, RecursionError):
            self._report(name, 1, "the template nests too deeply", "at most 20 loops and blocks within each other")
        except AssertionError:
            # Jinja does not analyze the arguments of a set block's filter.
            line = next((node.lineno for node in tree.find_all(nodes.AssignBlock) if node.filter), 1)
            hint = "use literals only, or filter the variable afterwards"
            self._report(name, line, "the filter of a set block has a variable as an argument", hint)

    def _load(self, name: str, analysis: TemplateAnalysis) -> None:
        environment = self._environment
        loaded = environment.template_class.from_code(environment, analysis.code, environment.make_globals(None))
        environment.compiled[name] = loaded
        environment.analyses[name] = analysis

    def _compiled(self, name: str, tree: nodes.Template) -> TemplateAnalysis:
        key = name, self._environment.sources[name]
        known = _known.get(key)
        if known is not None:
            return known.compiled
        # Compiling changes the tree.
        found = self._nodes[name]
        assigned, called, named = _assigned_names(found), _called_names(found), tuple(_named_templates(found))
        names, patterns = frozenset(names_of(found)), _patterns_of(found)
        analysis = TemplateAnalysis(self._environment.compile(tree, name, None), names, patterns)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = _Known(analysis, frozenset(assigned), frozenset(called), named)
        return analysis

    def _report(self, name: str, line: int, message: str, hint: str) -> None:
        source = self._environment.sources[name]
        self.problems.append(Problem(message=message, source=name, line=line, hint=hint, excerpt=excerpt(source, line)))

    def _faults(self, found_nodes: list[nodes.Node], named: set[str]) -> Iterator[tuple[int, str, str]]:
        for node in found_nodes:
            match node:
                case nodes.Filter():
                    yield from self._unknown(node, "filter", node.name)
                    yield from self._unknown_by_name(node)
                case nodes.Test():
                    yield from self._unknown(node, "test", node.name)
                case nodes.Call(node=nodes.Name() as function) if function.name not in named:
                    message = f"there is no function or macro {function.name!r}"
                    yield node.lineno, message, did_you_mean(function.name, named - _ALWAYS_DEFINED)
                case nodes.Include():
                    yield from self._missing_templates(node)
                    if not node.with_context:
                        yield node.lineno, "an include without context is not supported", "remove 'without context'"
                case nodes.Import() | nodes.FromImport() | nodes.Extends():
                    yield from self._missing_templates(node)
                case nodes.CallBlock(
                    call=nodes.Call(node=nodes.InternalName(name="h_each")), body=[nodes.Block() as body]
                ):
                    for found in outer_loops(body.body):
                        message = "`loop` is not available in each: the output of one object must not depend on others"
                        yield found.lineno, message, "number or separate objects outside of each, or use for"
                case nodes.Const(value=str() as text) if _SURROGATE.search(text):
                    message = "a text contains half of a surrogate pair, which no file can contain"
                    yield node.lineno, message, "write the character itself instead of its escapes"
                case nodes.ScopedEvalContextModifier():
                    yield node.lineno, "autoescape is not supported", "use emitters: | word, | logformat …"

    def _unknown(self, node: nodes.Node, kind: str, name: str) -> Iterator[tuple[int, str, str]]:
        known: Iterable[str] = self._environment.filters if kind == "filter" else self._environment.tests
        if name not in known:
            hint = _ABSENT_FILTERS.get(name, "") if kind == "filter" else ""
            yield node.lineno, f"there is no {kind} {name!r}", hint or did_you_mean(name, known)

    def _unknown_by_name(self, node: nodes.Filter) -> Iterator[tuple[int, str, str]]:
        for table, kind in ((_FILTERS_BY_NAME, "filter"), (_TESTS_BY_NAME, "test")):
            position = table.get(node.name)
            if position is not None and len(node.args) > position:
                argument = node.args[position]
                if isinstance(argument, nodes.Const) and isinstance(argument.value, str):
                    yield from self._unknown(argument, kind, argument.value)

    def _missing_templates(
        self, node: nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends
    ) -> Iterator[tuple[int, str, str]]:
        sources: Mapping[str, str] = self._environment.sources
        names = _templates_of(node)
        if names and not any(name in sources for name in names):
            yield node.lineno, f"there is no template {names[0]!r}", did_you_mean(names[0], sources)


def _templates_of(node: nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends) -> tuple[str, ...]:
    """Return the names of which one must exist; empty if the name is computed or the template is optional."""
    if isinstance(node, nodes.Include) and node.ignore_missing:
        return ()
    items = node.template.items if isinstance(node.template, nodes.List | nodes.Tuple) else [node.template]
    names = [str(item.value) for item in items if isinstance(item, nodes.Const)]
    return tuple(names) if len(names) == len(items) else ()


def _named_templates(found: list[nodes.Node]) -> Iterator[tuple[str, ...]]:
    for node in found:
        if isinstance(node, nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends) and _templates_of(node):
            yield _templates_of(node)


def _patterns_of(found: list[nodes.Node]) -> tuple[str, ...] | None:
    """Return the patterns with which the template calls `snippets`; None if they are not known."""
    calls = [node for node in found if isinstance(node, nodes.Call) and _is_snippets(node.node)]
    texts = [call.args[0].value for call in calls if len(call.args) == 1 and isinstance(call.args[0], nodes.Const)]
    uses = sum(map(_is_snippets, found))
    return tuple(map(str, texts)) if len(texts) == uses else None


def _is_snippets(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "snippets"


def _called_names(found: list[nodes.Node]) -> set[str]:
    return {node.node.name for node in found if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name)}


def _assigned_names(found: list[nodes.Node]) -> set[str]:
    names: set[str] = set()
    for node in found:
        if isinstance(node, nodes.Macro) or (isinstance(node, nodes.Name) and node.ctx != "load"):
            names.add(node.name)
        elif isinstance(node, nodes.Import):
            names.add(node.target)
        elif isinstance(node, nodes.FromImport):
            names.update(item if isinstance(item, str) else item[1] for item in node.names)
    return names


def _syntax_hint(message: str) -> str:
    if "endeach" in message or "'each'" in message:
        return SYNTAX
    if "endfragment" in message or "fragment" in message:
        return '{% fragment "name" for object %} … {% endfragment %}'
    return ""
