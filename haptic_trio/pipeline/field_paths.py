"""Fields of an object that caused a rejection.

A refusal names an emitter or a rule, never the value: that may come from a
Secret. So the object's own texts are given to the same emitter, and those
that it refuses in the same words are the fields that are meant.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from haptic_trio.config.yaml.document import item_path, key_path
from haptic_trio.k8s.resource import Resource
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.emitters import EMITTERS
from haptic_trio.templating.filters.values import VALUES

MOST_FIELDS: Final = 3
"""Where more have the same fault, the message could mean any of them, and none is named."""
MOST_TEXTS: Final = 2_000
LONGEST_TEXT: Final = 4_096
"""Characters: what is longer is not looked at."""
_MOST_CHARACTERS: Final = 100_000
_DEEPEST: Final = 32
_SECRET: Final = "Secret"  # noqa: S105  a kind of object
_NOT_WRITTEN: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_IDENTITY: Final = frozenset({"name", "namespace", "uid", "resourceVersion", "creationTimestamp"})
_PATH_RULE: Final = "a path must begin with /"
"""How the rules about paths begin that libraries have beside the emitter."""

_SERVICE_RULE: Final = "a backend must name a service"
"""How the rule begins that a backend is no other resource."""

Refuses = Callable[[str, str, str], bool]
"""Of path, last key and text."""


def find_fields(resource: Resource | None, message: str) -> tuple[str, ...]:
    """Return where in *resource* the texts are that *message* refuses; none where that cannot be told.

    Takes some milliseconds at most, whatever the object. Nothing of a Secret is looked at.
    """
    refuses = _rule_of(message)
    if refuses is None or not resource or resource.get("kind") == _SECRET:
        return ()
    found: dict[str, None] = {}
    looked_at = 0
    for number, (path, key, text) in enumerate(_texts_of(resource)):
        looked_at += len(text)
        if number >= MOST_TEXTS or looked_at > _MOST_CHARACTERS:
            # The one that is meant may be among the rest.
            return ()
        if path not in found and refuses(path, key, text):
            found[path] = None
            if len(found) > MOST_FIELDS:
                return ()
    return tuple(found)


def without_emitter(message: str) -> str:
    """Return *message* without the name of the emitter before it, which says nothing to those who write objects."""
    name, _, rest = message.partition(": ")
    return rest if rest and (name in EMITTERS or name in VALUES) else message


def _rule_of(message: str) -> Refuses | None:
    name = message.partition(": ")[0]
    emitter = EMITTERS.get(name) or VALUES.get(name)
    if emitter is not None:
        return lambda _path, _key, text: _is_refused(emitter, text, message)
    if message.startswith(_PATH_RULE):
        # Of an Ingress, or of a route of the Gateway API.
        return lambda path, key, text: (key == "path" or path.endswith(".path.value")) and _is_ambiguous(text)
    if message.startswith(_SERVICE_RULE):
        return lambda path, _key, _text: path.endswith("ackend.resource.kind")
    return None


def _is_refused(emitter: Callable[..., Any], text: str, message: str) -> bool:
    try:
        emitter(text)
    except EmitError as exc:
        return str(exc) == message
    except (TypeError, ValueError, LookupError):
        # It wants more than a text.
        return False
    return False


def _is_ambiguous(path: str) -> bool:
    elements = path.removeprefix("/").split("/")
    return (
        not path.startswith("/")
        or "%2f" in path.lower()
        or any(map(str.isspace, path))
        or any(element in {".", ".."} for element in elements)
        or "" in elements[:-1]
    )


def _texts_of(resource: Resource) -> Iterator[tuple[str, str, str]]:
    """Yield path, last key and value of each text that whoever wrote *resource* has written."""
    metadata = resource.get("metadata") or {}
    written = {key: value for key, value in metadata.items() if key not in _IDENTITY}
    rest = {key: value for key, value in resource.items() if key not in {"apiVersion", "kind", "metadata", "status"}}
    yield from _walk({**rest, "metadata": written}, "", "", 0)


def _walk(value: Any, path: str, key: str, depth: int) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, str):
        if len(value) <= LONGEST_TEXT:
            yield path, key, value
            # Some annotations are lists, of which each item is emitted.
            yield from ((path, key, item.strip()) for item in value.split(",") if item is not value)
    elif depth >= _DEEPEST:
        return
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in _NOT_WRITTEN:
                yield from _walk(inner, key_path(path, name), name, depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, item_path(path, index), key, depth + 1)
