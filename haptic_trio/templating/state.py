"""What templates can change in place: Jinja's namespace, cycler and joiner, which a fragment must not share.

The output of a fragment may depend on nothing that another one changes. So
in `{% each %}` those from outside are refused. In a `{% fragment %}` they
work, and it is rendered again whenever the template around it is.
"""

from typing import Any

from jinja2.utils import Cycler, Joiner, Namespace

from haptic_trio.templating.emit import TemplateFaultError
from haptic_trio.templating.run import current_run


class TemplateNamespace(Namespace):
    """Jinja's `namespace(…)`, which knows whose it is."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        Namespace.__init__(*args, **kwargs)
        object.__setattr__(args[0], "_owner", current_run().own_state())

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "_Namespace__attrs", "_owner"):
            return object.__getattribute__(self, name)
        _touch(self, "namespace")
        return super().__getattribute__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _touch(self, "namespace")
        super().__setitem__(name, value)


class TemplateCycler(Cycler):
    """Jinja's `cycler(…)`, which knows whose it is."""

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self._owner = current_run().own_state()

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
    """Jinja's `joiner(…)`, which knows whose it is."""

    def __init__(self, sep: str = ", ") -> None:
        super().__init__(sep)
        self._owner = current_run().own_state()

    def __call__(self) -> str:
        """Return nothing the first time, then the separator."""
        _touch(self, "joiner")
        return super().__call__()


def _touch(state: Any, kind: str) -> None:
    if not current_run().touch_state(state._owner):  # noqa: SLF001  ours
        raise TemplateFaultError(
            f"a {kind} from outside of {{% each %}} cannot be used within it",
            "give what you need of it a name before: {% set total = counts.total %}",
        )
