"""Fields of an object that caused a rejection.

A rejection names an emitter or a rule, never the value, which may come from a
Secret. If the value is a text of the object, its path is known already.
Otherwise the search passes each text of the object to the same emitter: a field
is at fault if the emitter rejects it with the same message.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.emitters import EMITTERS
from haptic_trio.templating.filters.values import VALUES
from haptic_trio.templating.values.object_texts import MOST_CHARACTERS, MOST_FIELDS, MOST_TEXTS, message_about, texts_of

_SECRET: Final = "Secret"  # noqa: S105  a kind of object
_WHOLE: Final = frozenset({"pem", "b64decode"})
"""Emitters of whole files, whose messages name no single text."""
_FIRST_WORD: Final = re.compile(r"[a-z0-9-]{3,}(?=:? )").match
_TRUST: Final = ("/auth-tls-secret", "/secure-verify-ca-secret", "/proxy-ssl-secret", "/server-ca")
_OF_SECRETS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("htpasswd", "passwords"), ("/auth-secret",)),
    **dict.fromkeys(("authorities", "revocations"), _TRUST),
}
"""Emitters of the content of Secrets, with the ends of the annotations that name these Secrets."""
_PATH_RULE: Final = "a path must begin with /"
"""Prefix of the messages of path rules in libraries."""

_SERVICE_RULE: Final = "a backend must name a service"
"""Prefix of the message of the rule that a backend is a Service."""

Rejects = Callable[[str, str, str], bool]
"""Whether the rule rejects a text; called with path, last key and text."""


def name_fields(resource: Mapping[str, Any] | None, problem: Problem) -> Problem:
    """Return *problem* with the path of the field of *resource* at fault, if it has none and one is found."""
    if problem.path or not (fields := find_fields(resource, problem.message)):
        return problem
    return msgspec.structs.replace(
        problem, path=", ".join(fields), message=message_about(resource, fields, without_emitter(problem.message))
    )


def find_fields(resource: Mapping[str, Any] | None, message: str) -> tuple[str, ...]:
    """Return the paths of the texts in *resource* that *message* rejects; none if that is ambiguous.

    Takes at most a few milliseconds for any object. Secrets are not searched.
    """
    rejects = _rule_of(message)
    if rejects is None or not resource or resource.get("kind") == _SECRET:
        return ()
    found: dict[str, None] = {}
    searched = 0
    for number, (path, key, text) in enumerate(_texts_and_items(resource)):
        searched += len(text)
        if number >= MOST_TEXTS or searched > MOST_CHARACTERS:
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
    return rest if rest and (name in EMITTERS or name in VALUES or name in _WHOLE) else message


def _texts_and_items(resource: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for path, key, text in texts_of(resource):
        yield path, key, text
        # Some annotations are lists whose items are emitted separately.
        yield from ((path, key, item.strip()) for item in text.split(",") if item is not text)


def _rule_of(message: str) -> Rejects | None:
    name = message.partition(": ")[0]
    if ends := _OF_SECRETS.get(name):
        return lambda path, key, _text: path.startswith("metadata.annotations") and key.endswith(ends)
    emitter = EMITTERS.get(name) or VALUES.get(name)
    if emitter is not None:
        return lambda _path, _key, text: _is_rejected(emitter, text, message)
    if message.startswith(_PATH_RULE):
        # A path of an Ingress or of a Gateway API route.
        return lambda path, key, text: (key == "path" or path.endswith(".path.value")) and _is_ambiguous(text)
    if message.startswith(_SERVICE_RULE):
        return lambda path, _key, _text: path.endswith("ackend.resource.kind")
    if match := _FIRST_WORD(message):
        # Libraries begin with the name of the annotation, without its prefix.
        return lambda path, key, _text: path.startswith("metadata.annotations") and key.endswith(f"/{match[0]}")
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
