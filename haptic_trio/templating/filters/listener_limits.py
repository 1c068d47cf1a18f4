"""Filter for the limits that a Gateway sets for its listeners, below those of the administrator."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.emitters import duration, integer, microseconds
from haptic_trio.templating.filters.values import byte_count, under
from haptic_trio.templating.values.faults import did_you_mean
from haptic_trio.templating.values.text import Emitted

_PREFIX: Final = "haptic-trio/"
_WORD: Final = re.compile(r"(?:([1-9][0-9]{0,4})=)?([0-9a-z]{1,20})").fullmatch
_MOST_WORDS: Final = 64
_MOST: Final = 50_000_000
_LONGEST_SHOWN: Final = 40
_MOST_UNKNOWN: Final = 10


class ListenerLimits(NamedTuple):
    """Limits of one port that are lower than the administrator's; empty or 0: the administrator's applies."""

    timeout_client: Emitted | str = ""
    timeout_http_request: Emitted | str = ""
    timeout_http_keep_alive: Emitted | str = ""
    max_connections: int = 0
    """Of all clients."""
    connections_per_client: int = 0
    rate_limit: int = 0
    """Requests of one client within `rateLimitPeriod`."""
    max_body_size: int = 0
    """In bytes."""
    ignored: tuple[str, ...] = ()
    """Messages about annotations without effect: limits above the administrator's."""


def _time(text: str) -> tuple[int, Emitted]:
    return microseconds(text), duration(text)


def _count(text: str) -> tuple[int, int]:
    number = int(integer(text, 1, _MOST))
    return number, number


def _bytes(text: str) -> tuple[int, int]:
    number = byte_count(text)
    return number, number


_READERS: Final[dict[str, Callable[[str], tuple[int, Any]]]] = {
    "timeout-client": _time,
    "timeout-http-request": _time,
    "timeout-http-keep-alive": _time,
    "max-connections": _count,
    "connections-per-client": _count,
    "rate-limit": _count,
    "max-body-size": _bytes,
}


def listener_limits(annotations: Any, port: int, *administrator: Mapping[str, Any]) -> ListenerLimits:
    """The limits that the *annotations* `haptic-trio/…` of a Gateway set for *port*, if they are below *administrator*.

    *administrator* are mappings with the limit of each name, of which 0 and
    an empty text mean that there is none; names without one have no effect at
    the port. A value has words VALUE, for all ports, and PORT=VALUE. Raises
    EmitError for a value that cannot be read.
    """
    limits = {name: limit for mapping in administrator for name, limit in mapping.items()}
    found: dict[str, Any] = {}
    ignored: list[str] = []
    given = under(annotations, _PREFIX)
    for name in _READERS:
        if name not in given:
            continue
        text = _value_for(name, given[name], port)
        if text is None or name not in limits:
            continue
        amount, emitted = _read(name, text)
        most = _amount(name, limits[name])
        if not most or amount < most:
            found[name.replace("-", "_")] = emitted
        elif amount > most:
            ignored.append(
                f"port {port}: {_PREFIX}{name} is {text}, and the administrator's limit {limits[name]} applies;"
                " a Gateway can only lower it"
            )
    return ListenerLimits(**found, ignored=tuple(ignored))


def unknown_limits(annotations: Any) -> list[str]:
    """Messages about *annotations* `haptic-trio/…` of a Gateway that `listener_limits` does not know, at most ten."""
    unknown = sorted(name for name in under(annotations, _PREFIX) if name not in _READERS)
    shown = unknown[:_MOST_UNKNOWN]
    found = [f"{_PREFIX}{name[:_LONGEST_SHOWN]} is not known{_suggestion(name)}" for name in shown]
    if len(unknown) > len(shown):
        found[-1] += f"; {len(unknown) - len(shown)} more are not known, either"
    return found


def _value_for(name: str, value: Any, port: int) -> str | None:
    """Return the word of *value* for *port*; all words are checked, whatever the port: a value is valid or not."""
    words = str(value).split() if isinstance(value, str) else []
    if not words or len(words) > _MOST_WORDS:
        raise EmitError(f"{_PREFIX}{name}: expected 1 to {_MOST_WORDS} words VALUE or PORT=VALUE")
    found: dict[str | None, str] = {}
    for word in words:
        match = _WORD(word)
        if match is None or match[1] in found:
            raise EmitError(
                f"{_PREFIX}{name}: a word is not VALUE or PORT=VALUE, or a port has two values",
                "such as `100`, or `8080=100 8443=500`",
            )
        _read(name, match[2])
        found[match[1]] = match[2]
    return found.get(str(port), found.get(None))


def _read(name: str, text: str) -> tuple[int, Any]:
    try:
        amount, emitted = _READERS[name](text)
    except EmitError as exc:
        raise EmitError(f"{_PREFIX}{name}: {exc.message}", exc.hint) from None
    if not amount:
        raise EmitError(f"{_PREFIX}{name}: the value is 0", "remove the annotation for the administrator's limit")
    return amount, emitted


def _amount(name: str, limit: Any) -> int:
    return _READERS[name](str(limit))[0] if str(limit or 0) != "0" else 0


def _suggestion(name: str) -> str:
    hint = did_you_mean(name, tuple(_READERS))
    return f"; {hint}" if hint else ""
