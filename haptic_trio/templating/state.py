"""Mutable objects of templates: Jinja2's namespace, cycler and joiner, isolated for each fragment.

The output of a fragment must not depend on values that another fragment
changes. So `{% each %}` rejects mutable objects from outside. A `{% fragment %}`
may use them, and then renders again whenever its template does.
"""

from collections.abc import Iterator
from typing import Any

from jinja2.utils import Cycler, Joiner, Namespace

from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.limits import check_items


class TemplateNamespace(Namespace):
    """Jinja's `namespace(…)`, which knows the rendering that created it."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        Namespace.__init__(*args, **kwargs)
        object.__setattr__(args[0], "_owner", current_recorder().own_state())

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "_Namespace__attrs", "_owner"):
            return object.__getattribute__(self, name)
        _touch(self, "namespace")
        return super().__getattribute__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _touch(self, "namespace")
        super().__setitem__(name, value)


class TemplateCycler(Cycler):
    """Jinja's `cycler(…)`, which knows the rendering that created it."""

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self._owner = current_recorder().own_state()

    def reset(self) -> None:
        """Begin with the first item again."""
        _touch(self, "cycler")
        super().reset()

    @property
    def current(self) -> Any:
        """The item that `next` will return."""
        _touch(self, "cycler")
        return self.items[self.pos]


class TemplateJoiner(Joiner):
    """Jinja's `joiner(…)`, which knows the rendering that created it."""

    def __init__(self, sep: str = ", ") -> None:
        super().__init__(sep)
        self._owner = current_recorder().own_state()

    def __call__(self) -> str:
        """Return nothing the first time, then the separator."""
        _touch(self, "joiner")
        return super().__call__()


class TemplateCollection:
    """`collect()`: keys with a value each, in insertion order; of equal keys the first is kept.

    `add(key, value)` returns whether the key is new. `key in …`, `get(key)` and `add` cost the same however many there
    are, so a loop that collects costs no more than its turns. Iteration gives the keys; `values()` and `items()` are
    lists.
    """

    __slots__ = ("_items", "_owner")

    def __init__(self) -> None:
        self._items: dict[Any, Any] = {}
        self._owner = current_recorder().own_state()

    def add(self, key: Any, value: Any = None) -> bool:
        """Store *value* under *key* unless the key exists; return whether it is new."""
        items = self._found(key)
        if key in items:
            return False
        check_items(range(len(items) + 1))
        items[key] = value
        return True

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of *key*, or *default*."""
        return self._found(key).get(key, default)

    def values(self) -> list[Any]:
        """Return the values."""
        return list(self._found().values())

    def items(self) -> list[tuple[Any, Any]]:
        """Return keys and values."""
        return list(self._found().items())

    def __contains__(self, key: Any) -> bool:
        return key in self._found(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._found()))

    def __len__(self) -> int:
        return len(self._found())

    def _found(self, key: Any = "") -> dict[Any, Any]:
        _touch(self, "collection")
        if not isinstance(key, str | int):
            raise TemplateFaultError(f"the key of a collection is a {type(key).__name__}, not text or a number")
        return self._items


def _touch(state: Any, kind: str) -> None:
    if not current_recorder().touch_state(state._owner):  # noqa: SLF001  an attribute of this module
        raise TemplateFaultError(
            f"a {kind} from outside of {{% each %}} cannot be used within it",
            "assign what you need to a variable before the loop: {% set total = counts.total %}",
        )
