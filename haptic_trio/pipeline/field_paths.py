"""Fields of an object that caused a rejection.

A rejection names an emitter or a rule, never the value, which may come from a
Secret. The search passes each text of the object to the same emitter: a field
is at fault if the emitter rejects it with the same message.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from haptic_trio.config.yaml.document import item_path, key_path
from haptic_trio.k8s.resource import Resource
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.emitters import EMITTERS
from haptic_trio.templating.filters.values import VALUES

MOST_FIELDS: Final = 3
"""If more fields have the same fault, the message is ambiguous, and no field is named."""
MOST_TEXTS: Final = 2_000
LONGEST_TEXT: Final = 4_096
"""Characters; longer texts are skipped."""
_MOST_CHARACTERS: Final = 100_000
_DEEPEST: Final = 32
_SECRET: Final = "Secret"  # noqa: S105  a kind of object
_NOT_WRITTEN: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_IDENTITY: Final = frozenset({"name", "namespace", "uid", "resourceVersion", "creationTimestamp"})
_PATH_RULE: Final = "a path must begin with /"
"""Prefix of the messages of path rules in libraries."""

_SERVICE_RULE: Final = "a backend must name a service"
"""Prefix of the message of the rule that a backend is a Service."""

Rejects = Callable[[str, str, str], bool]
"""Whether the rule rejects a text; called with path, last key and text."""


def find_fields(resource: Resource | None, message: str) -> tuple[str, ...]:
    """Return the paths of the texts in *resource* that *message* rejects; none if that is ambiguous.

    Takes at most a few milliseconds for any object. Secrets are not searched.
    """
    rejects = _rule_of(message)
    if rejects is None or not resource or resource.get("kind") == _SECRET:
        return ()
    found: dict[str, None] = {}
    searched = 0
    for number, (path, key, text) in enumerate(_texts_of(resource)):
        searched += len(text)
        if number >= MOST_TEXTS or searched > _MOST_CHARACTERS:
            # The field at fault may be in the rest.
            return ()
        if path not in found and rejects(path, key, text):
            found[path] = None
            if len(found) > MOST_FIELDS:
                return ()
    return tuple(found)


def without_emitter(message: str) -> str:
    """Return *message* without its prefix, the name of the emitter, which owners of objects do not know."""
    name, _, rest = message.partition(": ")
    return rest if rest and (name in EMITTERS or name in VALUES) else message


def _rule_of(message: str) -> Rejects | None:
    name = message.partition(": ")[0]
    emitter = EMITTERS.get(name) or VALUES.get(name)
    if emitter is not None:
        return lambda _path, _key, text: _is_rejected(emitter, text, message)
    if message.startswith(_PATH_RULE):
        # A path of an Ingress or of a Gateway API route.
        return lambda path, key, text: (key == "path" or path.endswith(".path.value")) and _is_ambiguous(text)
    if message.startswith(_SERVICE_RULE):
        return lambda path, _key, _text: path.endswith("ackend.resource.kind")
    return None


def _is_rejected(emitter: Callable[..., Any], text: str, message: str) -> bool:
    try:
        emitter(text)
    except EmitError as exc:
        return str(exc) == message
    except (TypeError, ValueError, LookupError):
        # The emitter takes more than a text.
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
    """Yield path, last key and value of each text in *resource*, except those that the API server sets."""
    metadata = resource.get("metadata") or {}
    written = {key: value for key, value in metadata.items() if key not in _IDENTITY}
    rest = {key: value for key, value in resource.items() if key not in {"apiVersion", "kind", "metadata", "status"}}
    yield from _walk({**rest, "metadata": written}, "", "", 0)


def _walk(value: Any, path: str, key: str, depth: int) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, str):
        if len(value) <= LONGEST_TEXT:
            yield path, key, value
            # Some annotations are lists whose items are emitted separately.
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
