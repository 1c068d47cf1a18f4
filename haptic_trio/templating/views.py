"""Views of the stores for templates: lookups by the name of a watched kind."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

from haptic_trio.templating.filters.selection import dig
from haptic_trio.templating.incremental.questions import EXISTENCE, UNKNOWN, Answer, Aspect
from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.templating.values.faults import ContentUnavailableError, TemplateFaultError

T = TypeVar("T")

ENGINE_METHODS: Final = frozenset({"derive", "peek", "rely", "share"})
"""Methods of `ResourceView` that templates cannot call: they take functions, or record no lookup."""


class Lookup(Protocol):
    """A store as templates may use it."""

    def list(self) -> Sequence[Any]:
        """Return all objects, in a stable order."""
        ...

    def get(self, *keys: str) -> Sequence[Any]:
        """Return the objects whose first index keys are *keys*."""
        ...

    def get_single(self, *keys: str) -> Any | None:
        """Return the one object with *keys*; None without one."""
        ...


class ResourceView:
    """One kind of object: `resources.services.get(namespace, name)`."""

    __slots__ = ("_lookup", "_seen", "name")

    def __init__(self, lookup: Lookup, name: str = "") -> None:
        self._lookup = lookup
        # The same store, with the last good versions of quarantined objects.
        self._seen = lookup
        self.name = name

    def peek(self) -> Sequence[Any]:
        """Return all objects as they are now, without recording a lookup; for the engine, not for templates."""
        return self._lookup.list()

    def list(self) -> Sequence[Any]:
        """Return all objects, in a stable order."""
        run = current_recorder()
        run.ask(("get", self.name))
        found = self._seen.list()
        run.grant_list(self.name, len(found))
        return found

    def get(self, *keys: Any) -> Sequence[Any]:
        """Return the objects whose first index keys are *keys*."""
        texts = tuple(map(str, keys))
        current_recorder().ask(("get", self.name, *texts))
        return self._seen.get(*texts)

    def has(self, *keys: Any) -> bool:
        """Whether an object with the first index keys *keys* exists; its content is not part of the lookup."""
        return self._answer(EXISTENCE, keys)  # type: ignore[no-any-return]

    def pick(self, path: Any, *keys: Any) -> Sequence[Any]:
        """Return the value at the JSONPath *path* of each object with the first index keys *keys*; None if absent.

        The fragment does not render again when other fields of the objects
        change. Raises `TemplateFaultError` for Secrets and for an invalid
        path.
        """
        if not isinstance(path, str) or path == EXISTENCE:
            raise TemplateFaultError("the first argument of pick is not a path", 'pick("spec", namespace, name)')
        return self._answer(str(path), keys)  # type: ignore[no-any-return]

    def derive(self, aspect: Callable[[Sequence[Any]], T], *keys: Any) -> T:
        """Return the result of *aspect* for the objects with the first index keys *keys*; without keys, for all.

        Not for templates, and not for Secrets. *aspect* depends on these
        objects only, is hashable, and equals each function with the same
        results. It is called once for all fragments that ask; they do not
        render again while the result is the same.
        """
        # A render asks this twenty times for each route: without further calls.
        run = current_recorder()
        index = run.index
        question = ("has", self.name, *map(str, keys))
        part = index.part(question, aspect)
        run.trace.asked.add(part)
        answer = index.answers.get(part, UNKNOWN)
        if answer is UNKNOWN:
            answer = index.answers[part] = answer_of(aspect, self._seen.get(*question[2:]))
        return answer  # type: ignore[no-any-return]

    def share(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of *compute*, called once for all fragments of a render that ask with the same *key*.

        Not for templates. *compute* does nothing but lookups, of any kind of
        object; *key* identifies all its other input. Each fragment depends on
        these lookups.
        """
        return current_recorder().share(key, compute)

    def rely(self, condition: Callable[[Any, str], str | None]) -> None:
        """Have the output of the fragment used as a fallback only as *condition* permits; see `outputs.Condition`.

        Not for templates.
        """
        current_recorder().rely(condition)

    def _answer(self, aspect: Aspect, keys: tuple[Any, ...]) -> Any:
        question = ("has", self.name, *map(str, keys))
        run = current_recorder()
        part, answers = run.ask_part(question, aspect), run.index.answers
        answer = answers.get(part, UNKNOWN)
        if answer is UNKNOWN:
            answer = answers[part] = answer_of(aspect, self._seen.get(*question[2:]))
        return answer

    def get_single(self, *keys: Any) -> Any | None:
        """Return the one object with *keys*; None without one."""
        texts = tuple(map(str, keys))
        current_recorder().ask(("get", self.name, *texts))
        return self._seen.get_single(*texts)


def answer_of(aspect: Aspect, found: Sequence[Any]) -> Any:
    """Return one *aspect* of the objects *found*: whether there are any, values at a path, or a function's result.

    Raises `TemplateFaultError` if the aspect is a path and the objects are Secrets.
    """
    if aspect == EXISTENCE:
        return bool(found)
    # All objects of a store are of one kind.
    if found and found[0].get("kind") == "Secret":
        # Outputs that derive from a Secret are known by their lookups of whole objects.
        raise TemplateFaultError("pick cannot read Secrets", "use get, which returns the whole object")
    if not isinstance(aspect, str):
        return aspect(found)
    values, missing = [], None
    for resource in found:
        try:
            values.append(dig(resource, aspect, None))
        except ContentUnavailableError as error:
            # Go on, so that all missing objects are recorded and fetched together.
            missing = missing or error
    if missing is not None:
        raise missing
    return tuple(values)


def answers_from(find: Callable[..., Sequence[Any]]) -> Answer:
    """Return a function that answers aspects of lookups again, with what *find* returns for their keys."""
    return lambda aspect, keys: answer_of(aspect, find(*keys))


@contextmanager
def showing(view: ResourceView, lookup: Lookup, seen: Lookup | None = None) -> Iterator[None]:
    """Have *view* show *lookup* inside the context; earlier lookups are not touched.

    With *seen*, this answers lookups as for `show_instead`.
    """
    # No method: templates could call it.
    before = view._lookup, view._seen  # noqa: SLF001  the two are one piece
    view._lookup, view._seen = lookup, seen if seen is not None else lookup  # noqa: SLF001
    try:
        yield
    finally:
        view._lookup, view._seen = before  # noqa: SLF001


def show_instead(view: ResourceView, lookup: Lookup | None) -> None:
    """Have *view* answer lookups from *lookup* instead of its own store; None ends this.

    `{% each %}` still loops over the objects of the view's own store.
    """
    view._seen = lookup if lookup is not None else view._lookup  # noqa: SLF001  the two are one piece


class _NoStore:
    """The store of a view that is not used any more."""

    def list(self) -> Sequence[Any]:
        return ()

    def get(self, *_keys: str) -> Sequence[Any]:
        return ()

    def get_single(self, *_keys: str) -> Any | None:
        return None


def forget_store(view: ResourceView) -> None:
    """Let go of the store of *view*; compiled templates may hold the view until the next collection of garbage."""
    view._lookup = view._seen = _NoStore()  # noqa: SLF001  the two are one piece


def shown_by(view: ResourceView) -> Lookup:
    """Return the store of *view*, without the one that `show_instead` set."""
    return view._lookup  # noqa: SLF001  the two are one piece


def seen_in(view: ResourceView) -> Lookup:
    """Return the store that answers the lookups of *view*."""
    return view._seen  # noqa: SLF001  the two are one piece


class ResourcesView(Mapping[str, ResourceView]):
    """All kinds by their configured names: `resources.ingresses`, `resources["ingresses"]`."""

    __slots__ = ("_used", "_views")

    def __init__(self, lookups: Mapping[str, Lookup]) -> None:
        self._views = {name: ResourceView(lookup, name) for name, lookup in lookups.items()}
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> ResourceView:
        view = self._views[name]
        self._used.add(name)
        return view

    def get(self, name: str, default: Any = None) -> Any:
        """Return the view *name*, or *default*; as `Mapping.get`, which takes three times as long."""
        view = self._views.get(name)
        if view is None:
            return default
        self._used.add(name)
        return view

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


def views_in(views: ResourcesView) -> Mapping[str, ResourceView]:
    """Return all kinds by name, without counting them as used."""
    return views._views  # noqa: SLF001  the two are one piece


def mark_used(views: ResourcesView, kinds: AbstractSet[str]) -> None:
    """Count *kinds* as used in *views*."""
    # No method: templates could call it.
    views._used |= kinds & views._views.keys()  # noqa: SLF001  the two are one piece


def used_kinds(views: ResourcesView) -> AbstractSet[str]:
    """Return the names of the kinds that were looked up so far; the set grows while a render runs."""
    # No method: templates could call it.
    return views._used  # noqa: SLF001  the two are one piece
