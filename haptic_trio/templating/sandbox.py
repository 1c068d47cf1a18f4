"""Sandboxed Jinja2 environment: what templates can reach, and the checks of each call and operator."""

from collections.abc import Callable, Mapping
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from jinja2 import Template, TemplateNotFound
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from haptic_trio.gateway.routes.backends import Retry
from haptic_trio.gateway.routes.functions import GatewayFunctions
from haptic_trio.gateway.routes.policies import BackendTls
from haptic_trio.gateway.routes.routing import Entry
from haptic_trio.gateway.routes.variants import Variant
from haptic_trio.ingress.functions import IngressFunctions, IngressView
from haptic_trio.templating.codegen import TemplateCodeGenerator
from haptic_trio.templating.filters.emit import concat
from haptic_trio.templating.filters.registry import FILTERS, join_items
from haptic_trio.templating.filters.service_ports import ServicePort
from haptic_trio.templating.incremental.fragments import render_fragment
from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.templating.missing import MissingValue
from haptic_trio.templating.state import TemplateNamespace
from haptic_trio.templating.tags import EachTag, FragmentTag, IncludeSnippetsTag
from haptic_trio.templating.values import limits
from haptic_trio.templating.values.text import Emitted
from haptic_trio.templating.views import ENGINE_METHODS, ResourcesView, ResourceView

_DICT_METHODS: Final = frozenset({"get", "items", "keys", "values"})
_LIST_METHODS: Final = frozenset({"count", "index"})
_STR_METHODS: Final = frozenset({
    "capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal",
    "isdigit", "islower", "isnumeric", "isspace", "isupper", "lower", "lstrip", "partition", "removeprefix",
    "removesuffix", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
    "swapcase", "title", "upper",
})  # fmt: skip
# Named tuples, such as those that groupby makes, are reached by their fields.
_METHODS: Final[tuple[tuple[Any, frozenset[str]], ...]] = (
    (Mapping, _DICT_METHODS),
    (str, _STR_METHODS),
    (list, _LIST_METHODS),
    ((int, float, bytes, range, type(None)), frozenset()),
)
# A render accesses these thousands of times, so their attributes are not checked each time.
_KNOWN: Final[Mapping[type, frozenset[str]]] = {
    ResourceView: frozenset({"get", "get_single", "has", "list", "pick"}),
    IngressFunctions: frozenset({"certificate_lines", "default_lines", "handles", "view"}),
    IngressView: frozenset({"asks_clients", "client_lines", "has", "has_connections", "has_host", "notes"}),
    GatewayFunctions: frozenset({"backend_name", "backends", "exact_paths", "ineffective", "prefixes", "rules", "tls"}),
    Entry: frozenset(Entry.__struct_fields__),
    Variant: frozenset({*Variant.__struct_fields__, "is_h2", "is_tcp"}),
    Retry: frozenset(Retry.__struct_fields__),
    BackendTls: frozenset(BackendTls.__struct_fields__),
    ServicePort: frozenset(ServicePort.__struct_fields__),
    LoopContext: frozenset({"first", "index", "index0", "last", "length"}),
    str: _STR_METHODS,
    Emitted: _STR_METHODS,
}
_ABSENT: Final = object()
_DROPPED_GLOBALS: Final = ("lipsum",)


class TemplateAnalysis(NamedTuple):
    """A compiled template, its names, and the snippets that it includes."""

    code: CodeType
    """The same object for the same name and source, in every environment."""
    names: frozenset[str]
    """Every name that occurs in it."""
    patterns: tuple[str, ...] | None
    """Patterns of the snippets that it includes; None if they are computed."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox over a fixed set of templates."""

    code_generator_class = TemplateCodeGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(concat)

    def __init__(self, sources: Mapping[str, str], functions: Mapping[str, Any]) -> None:
        super().__init__(
            undefined=MissingValue,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            cache_size=0,
            extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols", EachTag, FragmentTag, IncludeSnippetsTag],
        )
        self.sources = sources
        self.compiled: dict[str, Template] = {}
        self.analyses: dict[str, TemplateAnalysis] = {}
        self.filters = dict(FILTERS)
        self.tests = {name: test for name, test in self.tests.items() if name not in ("escaped", "filter", "test")}
        for name in _DROPPED_GLOBALS:
            del self.globals[name]
        self.globals.update(functions)
        # Functions of this package that take no context, and need no safety check.
        self._simple = {render_fragment} | {
            function
            for function in functions.values()
            if type(function) is FunctionType and not hasattr(function, "jinja_pass_arg")
        }

    def dismantle(self) -> None:
        """Free the compiled templates without a collection of garbage; the environment must not be used any more.

        May be called again: a call that was cancelled while its thread went on is repeated.
        """
        for template in vars(self).pop("compiled", {}).values():
            # Its functions refer to their namespace, which refers to them and to this environment.
            template.root_render_func.__globals__.clear()
            vars(template).clear()
        vars(self).clear()

    def _load_template(self, name: str, globals: Any) -> Template:  # noqa: A002, ARG002  Jinja names it so
        current_recorder().ask(("template", str(name)))
        try:
            return self.compiled[name]
        except KeyError:
            raise TemplateNotFound(name) from None

    def getattr(self, obj: Any, attribute: str, place: str = "") -> Any:
        """Return the item *attribute* of a mapping, or what may be reached of another object."""
        kind = type(obj)
        if kind is dict or kind is ResourcesView:
            if attribute in obj:
                return obj[attribute]
            if kind is dict and attribute in _DICT_METHODS:
                return getattr(obj, attribute)
        elif attribute in _KNOWN.get(kind, ()):
            return getattr(obj, attribute)
        elif kind is TemplateNamespace and not attribute.startswith("_"):
            # It would also answer each question about its class that `_reach` asks.
            value = getattr(obj, attribute, _ABSENT)
            return value if value is not _ABSENT else self._missing(obj, attribute, place)
        return self._reach(obj, attribute, place)

    def _reach(self, obj: Any, attribute: str, place: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, ResourceView) and attribute in ENGINE_METHODS:
            return self.unsafe_undefined(obj, attribute)
        if isinstance(obj, str) and attribute in _BOUNDED:
            return partial(_BOUNDED[attribute], obj)
        methods = next((methods for kind, methods in _METHODS if isinstance(obj, kind)), None)
        if methods is not None and attribute not in methods:
            return self._missing(obj, attribute, place)
        try:
            # A `MissingValue` raises its own error here.
            value = getattr(obj, attribute)
        except AttributeError:
            return self._missing(obj, attribute, place)
        return value if self.is_safe_attribute(obj, attribute, value) else self.unsafe_undefined(obj, attribute)

    def getitem(self, obj: Any, argument: Any, place: str = "") -> Any:
        """Return `obj[argument]`; never an attribute."""
        try:
            return obj[argument]
        except (TypeError, LookupError):
            return self._missing(obj, str(argument), place)

    def _missing(self, obj: Any, name: str, place: str) -> MissingValue:
        return MissingValue(obj=obj, name=name, place=place, sources=self.sources)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call *function* from a template, within the deadline."""
        run = current_recorder()
        if limits.clock() > run.deadline:
            run.tick()
        if type(function) is Macro or self._is_simple(function):
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return function(*args, **kwargs)
        return super().call(context, function, *args, **kwargs)

    def _is_simple(self, function: Any) -> bool:
        kind = type(function)
        if kind is MethodType or kind is BuiltinMethodType:
            return type(function.__self__) in _KNOWN
        return kind is FunctionType and function in self._simple

    def call_binop(self, _context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply *operator* within the limits."""
        if operator == "+":
            return _add(left, right)
        if operator == "*":
            return limits.multiply(current_recorder(), left, right)
        if operator == "**":
            return limits.power(left, right)
        return limits.modulo(current_recorder(), left, right)


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        current_recorder().build(len(left) + len(right))
        text = str(left) + str(right)
        return Emitted(text) if type(left) is Emitted and type(right) is Emitted else text
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        limits.check_items(left, right)
        current_recorder().build(8 * (len(left) + len(right)))
    return left + right


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return limits.replace(current_recorder(), text, old, new, count)


_BOUNDED: Final[dict[str, Callable[..., str]]] = {"replace": _replace, "join": join_items}
