"""Captured scope of a fragment: the variables around it, compared between two renders.

Data is compared by value and type, since text that is trusted may equal text
that is not; macros by their code and by all values that they reach.
"""

from collections.abc import Callable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined
from jinja2.environment import TemplateModule
from jinja2.runtime import Context, LoopContext, Macro

_SLOTS: Final = ("_undefined_hint", "_undefined_obj", "_undefined_name", "_undefined_exception")
_DATA: Final = (str, int, float, bool, bytes, type(None))


class Memo(dict[tuple[int, int], tuple[bool, Any, Any]]):
    """By identity: whether two objects are the same; and the objects, so that their identity is not given away.

    If the left one belongs to the templates of another configuration,
    `changed` names the templates with another text or other snippets, and
    `variables` those whose values differ. `stale` are the changed templates
    and those that use such a variable.
    """

    changed: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()

    def declare(self, left: Any, right: Any) -> None:
        """Let *left* count as the same as *right*."""
        self[id(left), id(right)] = True, left, right

    def renewed(self) -> "Memo":
        """Return a memo with the same content."""
        copy = Memo(self)
        if self.stale or self.variables:
            copy.changed, copy.stale, copy.variables = self.changed, self.stale, self.variables
        return copy


def same(left: Any, right: Any, memo: Memo) -> bool:
    """Whether a template would behave the same with *left* and *right*; False if that is not known.

    *memo* has the results of earlier comparisons, whose objects must not have changed since.
    """
    if left is right:
        return True
    kind = type(left)
    if kind is not type(right):
        return False
    if issubclass(kind, _DATA):
        return bool(left == right) if kind is not float else repr(left) == repr(right)
    key = id(left), id(right)
    known = memo.get(key)
    if known is not None:
        return known[0]
    # What holds itself is the same if everything else is.
    memo[key] = True, left, right
    result = _same_structure(left, right, memo)
    memo[key] = result, left, right
    return result


def _same_structure(left: Any, right: Any, memo: Memo) -> bool:  # noqa: PLR0911  one for each kind
    if isinstance(left, dict):
        # The order counts: templates loop over it.
        return len(left) == len(right) and all(
            same(key, other, memo) and same(value, right[other], memo)
            for (key, value), other in zip(left.items(), right, strict=True)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(*pair, memo) for pair in zip(left, right, strict=True))
    if isinstance(left, range):
        return bool(left == right)
    if isinstance(left, Macro):
        return bool(left.name == right.name) and same(_function_of(left), _function_of(right), memo)
    if isinstance(left, FunctionType):
        return left.__code__ is right.__code__ and _same_cells(left.__closure__, right.__closure__, memo)
    if isinstance(left, MethodType):
        return left.__func__ is right.__func__ and same(left.__self__, right.__self__, memo)
    if isinstance(left, Context):
        return left.name == right.name and left.name not in memo.stale and same_variables(left, right, memo)
    if isinstance(left, TemplateModule):
        return same(vars(left), vars(right), memo)
    if isinstance(left, Undefined):
        return all(same(getattr(left, slot), getattr(right, slot), memo) for slot in _SLOTS)
    return False


def same_variables(left: Context | Mapping[str, Any], right: Context | Mapping[str, Any], memo: Memo) -> bool:
    """Whether a template that is not stale would behave the same with the variables *left* and *right*."""
    one, other = (given.get_all() if isinstance(given, Context) else given for given in (left, right))
    if memo.variables:
        one, other = (
            {name: value for name, value in given.items() if name not in memo.variables} for given in (one, other)
        )
    return same(one, other, memo)


def _same_cells(left: tuple[CellType, ...] | None, right: tuple[CellType, ...] | None, memo: Memo) -> bool:
    if left is None or right is None:
        return left is right
    return all(same(_content(one), _content(other), memo) for one, other in zip(left, right, strict=True))


_EMPTY: Final = object()


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def as_it_is(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return *scope* as it is now: its macros do not see what is assigned after this.

    It has no `loop`: the turn of a loop is not part of the scope.
    """
    memo: dict[int, Any] = {}
    return {name: _frozen(value, memo) for name, value in scope.items()}


def _frozen(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Macro):
        return _once(value, memo, _frozen_macro)
    if isinstance(value, FunctionType) and value.__closure__ and "__jinja_template__" in value.__globals__:
        return _once(value, memo, _frozen_function)
    if isinstance(value, MethodType) and isinstance(value.__self__, Context):
        return MethodType(value.__func__, _frozen(value.__self__, memo))
    if isinstance(value, Context):
        return _once(value, memo, _frozen_context)
    if isinstance(value, LoopContext):
        return StrictUndefined("a loop around this fragment cannot be used in it")
    return value


def _once(value: Any, memo: dict[int, Any], freeze: Callable[[Any, dict[int, Any]], Any]) -> Any:
    found = memo.get(id(value))
    return found if found is not None else freeze(value, memo)


def _function_of(macro: Macro) -> Any:
    """Return the compiled function of *macro*. Jinja has no public name for it: `test_scope` fails if it changes."""
    return macro._func  # noqa: SLF001


def _frozen_macro(macro: Any, memo: dict[int, Any]) -> Any:
    copy = memo[id(macro)] = object.__new__(Macro)
    copy.__dict__.update(macro.__dict__)
    copy._func = _frozen(_function_of(macro), memo)
    return copy


def _frozen_function(function: Any, memo: dict[int, Any]) -> Any:
    cells = tuple(CellType() for _ in function.__closure__)
    copy = memo[id(function)] = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    for cell, before in zip(cells, function.__closure__, strict=True):
        content = _content(before)
        if content is not _EMPTY:
            cell.cell_contents = _frozen(content, memo)
    return copy


def _frozen_context(context: Any, memo: dict[int, Any]) -> Any:
    variables = dict(context.get_all())
    copy = memo[id(context)] = Context(context.environment, variables, context.name, {})
    copy.eval_ctx = context.eval_ctx
    copy.blocks = context.blocks
    for name, value in variables.items():
        variables[name] = _frozen(value, memo)
    return copy
