"""Registry of template filters: safe ones of Jinja2, those of haptic-trio, and bounded replacements.

Jinja's `safe`, `escape` and the HTML filters are absent on purpose: trust is
made by emitters only. `random` is absent because equal input must give equal
output. Filters raise `TemplateFaultError` for wrong operands.
"""

import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Undefined, filters, pass_context, pass_environment
from jinja2.environment import Environment
from jinja2.runtime import Context

from haptic_trio.templating.filters import content, selection
from haptic_trio.templating.filters.address_lists import ADDRESS_LISTS
from haptic_trio.templating.filters.authorities import AUTHORITIES
from haptic_trio.templating.filters.credentials import CREDENTIALS
from haptic_trio.templating.filters.emit import EmitError, emit, number_text
from haptic_trio.templating.filters.emitters import EMITTERS
from haptic_trio.templating.filters.expressions import EXPRESSIONS
from haptic_trio.templating.filters.external import EXTERNAL
from haptic_trio.templating.filters.listener_limits import listener_limits, unknown_limits
from haptic_trio.templating.filters.service_ports import by_port
from haptic_trio.templating.filters.tcp_services import tcp_services
from haptic_trio.templating.filters.values import VALUES
from haptic_trio.templating.filters.zones import far_addresses
from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.templating.values import limits
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.marks import is_blank, trim
from haptic_trio.templating.values.text import Emitted

_FROM_JINJA: Final = (
    "abs", "count", "dictsort", "first", "float", "groupby", "int", "last", "length", "list", "max", "min", "sort",
    "truncate",
)  # fmt: skip
# Generators of Jinja are lists here: the first use of a variable must not exhaust it.
_MADE_LISTS: Final = ("items", "reverse", "unique")
_CHECKED_ITERATION: Final = ("map", "select", "reject", "selectattr", "rejectattr")
_EMPTY: Final = Emitted("")
_MAX_INDENT: Final = 200
_MAX_DIGITS: Final = 15


def default(value: Any, default_value: Any = _EMPTY, boolean: bool = False) -> Any:
    """*default_value* where *value* is absent or null, or with *boolean* anything false."""
    if value is None or isinstance(value, Undefined) or (boolean and not value):
        return default_value
    return value


@pass_environment
def join(environment: Environment, items: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    """Join *items*, or their *attribute*; the result is trusted only if every part and the separator is."""
    return join_items(separator, items if attribute is None else map(_getter(environment, attribute), items))


def join_items(separator: str, items: Iterable[Any]) -> str:
    """Join *items*; the result is trusted only if every part and the separator is."""
    trusted = separator == "" or type(separator) is Emitted
    parts: list[str] = []
    for item in items:
        if isinstance(item, str):
            trusted = trusted and type(item) is Emitted
            parts.append(item)
        else:
            parts.append(emit(item, "a part of join"))
    current_recorder().build(sum(map(len, parts)) + len(separator) * len(parts))
    text = str(separator).join(parts)
    return Emitted(text) if trusted else text


def indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indent the lines of *text*; blank lines only with *blank*. Trusted if *text* is."""
    if not isinstance(text, str):
        raise TemplateFaultError("indent: the value is not text")
    if isinstance(width, int) and 0 <= width <= _MAX_INDENT:
        space = " " * width
    elif isinstance(width, str) and re.fullmatch(r"[ \t]{0,200}", width):
        space = str(width)
    else:
        raise TemplateFaultError(f"indent: the width must be 0 to {_MAX_INDENT} or blanks")
    lines = text.split("\n")
    current_recorder().build(len(text) + len(space) * len(lines))
    indented = [
        space + line if (first or number) and (blank or not is_blank(line)) else line
        for number, line in enumerate(lines)
    ]
    return _like(text, "\n".join(indented))


def strip(text: Any) -> str:
    """Strip blanks at both ends. Trusted if *text* is."""
    if not isinstance(text, str):
        raise TemplateFaultError("trim: the value is not text")
    return _like(text, trim(text))


def replace(text: Any, old: str, new: str, count: int = -1) -> str:
    """Replace *old* by *new*; the result is data."""
    return limits.replace(current_recorder(), _any_text(text), str(old), str(new), count)


def percent_format(text: str, *args: Any, **kwargs: Any) -> str:
    """`text % args`; the result is data."""
    if args and kwargs:
        raise TemplateFaultError("format: takes positional or named values, not both")
    return limits.percent_format(current_recorder(), str(text), kwargs or args)


@pass_environment
def total(environment: Environment, items: Iterable[Any], attribute: str | None = None, start: float = 0) -> Any:
    """The sum of numbers, or of the numbers in *attribute*."""
    numbers = list(items if attribute is None else map(_getter(environment, attribute), items))
    numbers.append(start)
    if not all(isinstance(number, int | float) for number in numbers):
        raise TemplateFaultError("sum: an item is not a number")
    return sum(numbers)


def rounded(number: float, precision: int = 0, method: str = "common") -> Any:
    """*number* rounded to *precision* digits: method common, ceil or floor."""
    if not -_MAX_DIGITS <= precision <= _MAX_DIGITS:
        raise TemplateFaultError(f"round: the precision must be within {_MAX_DIGITS} digits")
    return filters.do_round(number, precision, method)  # type: ignore[arg-type]


def urlencode(text: Any) -> str:
    """*text* percent-encoded but for `/`; the result is data."""
    return quote(_any_text(text), safe="/")


def split(text: Any, separator: str | None = None, maxsplit: int = -1) -> list[str]:
    """The parts of *text* between separators (by default, blanks)."""
    return _any_text(text).split(separator, maxsplit)


def strip_prefix(text: Any, prefix: str) -> str:
    """*text* without *prefix*, if it begins so."""
    return _any_text(text).removeprefix(prefix)


def strip_suffix(text: Any, suffix: str) -> str:
    """*text* without *suffix*, if it ends so."""
    return _any_text(text).removesuffix(suffix)


def to_int(value: Any, default_value: int | None = None) -> int:
    """A whole number from its decimal text; *default_value*, or `EmitError` without one, for anything else."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,30}\s*", value):
        return int(value)
    if default_value is None:
        raise EmitError("to_int: the value is not a whole number")
    return default_value


@pass_environment
def attr(environment: Environment, value: Any, name: str) -> Any:
    """The attribute or item *name* of *value*."""
    return environment.getattr(value, str(name))


def _like(original: str, text: str) -> str:
    return Emitted(text) if type(original) is Emitted else text


def _any_text(value: Any) -> str:
    # Not `emit`: what comes of it is data again, whatever it holds.
    return str(value) if isinstance(value, str) else emit(value)


def _on_text(change: Callable[[str], str]) -> Callable[[Any], str]:
    # Jinja's own take a null for the word "none".
    def changed(text: Any) -> str:
        return change(_any_text(text))

    return changed


def _getter(environment: Environment, attribute: str | int) -> Callable[[Any], Any]:
    return filters.make_attrgetter(environment, attribute)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else number_text(value, "string")


def _checked(name: str) -> Callable[..., Any]:
    inner: Callable[..., Any] = filters.FILTERS[name]

    @pass_context
    def checked(context: Context, items: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        return list(inner(context, limits.checked_items(current_recorder(), items), *args, **kwargs))

    return checked


def _listed(name: str) -> Callable[..., Any]:
    inner: Callable[..., Any] = filters.FILTERS[name]

    @wraps(inner)
    def listed(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        return result if isinstance(result, str) else list(result)

    return listed


def _bounded(name: str) -> Callable[..., Any]:
    inner = filters.FILTERS[name]

    def bounded(items: Any, number: int, fill_with: Any = None) -> Any:
        if not 0 < number <= limits.MAX_ITEMS:
            raise TemplateFaultError(f"{name}: the number must be 1 to {limits.MAX_ITEMS:,}")
        return list(inner(items, number, fill_with))

    return bounded


def _keeping_value(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Return *inner*, whose errors have the value that it got, unless they name another one."""

    @wraps(inner)
    def filtered(value: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return inner(value, *args, **kwargs)
        except EmitError as error:
            if error.value is None and isinstance(value, str):
                error.value = str(value)
            raise

    return filtered


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    **{name: filters.FILTERS[name] for name in _FROM_JINJA},
    **{name: _checked(name) for name in _CHECKED_ITERATION},
    **{name: _listed(name) for name in _MADE_LISTS},
    **{name: _bounded(name) for name in ("batch", "slice")},
    **{name: _keeping_value(filter_) for name, filter_ in (EMITTERS | VALUES | EXTERNAL | EXPRESSIONS).items()},
    **ADDRESS_LISTS,
    **AUTHORITIES,
    **CREDENTIALS,
    "attr": attr,
    "b64decode": _keeping_value(content.b64decode),
    "b64encode": content.b64encode,
    "by_port": by_port,
    "capitalize": _on_text(str.capitalize),
    "d": default,
    "debug": content.debug,
    "default": default,
    "dig": selection.dig,
    "far_addresses": far_addresses,
    "format": percent_format,
    "glob_match": selection.glob_match,
    "group_by": selection.group_by,
    "hash": content.short_hash,
    "ident": content.ident,
    "indent": indent,
    "join": join,
    "lower": _on_text(str.lower),
    "pem": _keeping_value(content.pem),
    "replace": replace,
    "round": rounded,
    "sort_by": selection.sort_by,
    "split": split,
    "string": _string,
    "strip_prefix": strip_prefix,
    "strip_suffix": strip_suffix,
    "sum": total,
    "listener_limits": listener_limits,
    "tcp_services": tcp_services,
    "title": _on_text(str.title),
    "to_int": to_int,
    "tojson": content.to_json,
    "trim": strip,
    "unknown_limits": unknown_limits,
    "upper": _on_text(str.upper),
    "urlencode": urlencode,
}
