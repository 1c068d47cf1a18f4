"""Settings of a library: typed variables, and the check of values against their types."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.gateway.listeners.port_rules import port_range
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.emitters import address, duration, header_name, header_token, name, port, size
from haptic_trio.templating.filters.values import host_and_port, network
from haptic_trio.yaml.paths import item_path, key_path
from haptic_trio.yaml.scalars import shorten

_ALIKE: Final = 0.8
_WORD: Final = re.compile(r"[^\s\x00-\x1f\x7f]+").fullmatch
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?").fullmatch
_REFERENCE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?").fullmatch


class SettingType(StrEnum):
    """Type of a value."""

    SWITCH = "switch"
    NUMBER = "number"
    PORT = "port"
    PORTS = "ports"
    DURATION = "duration"
    SIZE = "size"
    TEXT = "text"
    WORD = "word"
    NAME = "name"
    HEADER = "header"
    HEADERS = "headers"
    ADDRESS = "address"
    NETWORK = "network"
    ENDPOINT = "endpoint"
    REFERENCE = "reference"
    NAMESPACES = "namespaces"
    ANYTHING = "anything"
    LIST = "list"
    MAPPING = "mapping"


class Setting(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A variable that a library reads."""

    type: SettingType
    """Type of its value."""
    default: Any
    """Default value; always allowed, even if it is not of the type."""
    meaning: str
    """Its effect, in a sentence or two; Markdown."""
    of: SettingType | None = None
    """Type of the items of a list and of the values of a mapping."""
    keys: SettingType = SettingType.TEXT
    """Type of the keys of a mapping."""
    values: tuple[str, ...] = ()
    """The words that are allowed; of a mapping, the keys. Empty: all."""
    min: int | None = None
    """The least number."""
    max: int | None = None
    """The largest number."""


SettingGroups = Mapping[str, Mapping[str, Setting]]
"""Settings by name, under the headings of the library's page."""


def flat_settings(*libraries: SettingGroups) -> dict[str, Setting]:
    """Return all settings by name; of two with one name, a later library's."""
    return {name: setting for groups in libraries for group in groups.values() for name, setting in group.items()}


def check_defaults(groups: SettingGroups) -> Iterator[Problem]:
    """Yield what is wrong with a library's own settings: defaults that do not fit, names that come twice."""
    seen: dict[str, str] = {}
    for heading, group in groups.items():
        for key, setting in group.items():
            path = key_path(key_path("settings", heading), key)
            if seen.setdefault(key, heading) != heading:
                yield Problem(message=f"{key!r} is also under {seen[key]!r}", path=path)
            if setting.type in _HOLDERS and setting.of is None:
                yield Problem(message=f"a {setting.type} needs `of`: what is in it", path=path)
            elif setting.type not in _HOLDERS and setting.default not in ("", 0):
                yield from _check_one(setting.type, setting, setting.default, f"{path}.default")
            elif setting.type in _HOLDERS:
                yield from _check_value(setting, setting.default, f"{path}.default")


def check_values(
    given: Mapping[str, Any], settings: Mapping[str, Setting], *, path: str, templates: Iterable[str] = ()
) -> Iterator[Problem]:
    """Yield what is wrong with the values *given* below *path*.

    A name that is not a setting is one of the user's own variables, unless it is
    much like a setting's name and none of *templates* mentions it.
    """
    texts = tuple(templates)
    for key, value in given.items():
        setting = settings.get(key)
        if setting is not None:
            if value != setting.default or type(value) is not type(setting.default):
                yield from _check_value(setting, value, key_path(path, key))
        elif (meant := _meant_by(key, settings)) and not any(_mentions(text, key) for text in texts):
            yield Problem(
                message=f"{shorten(key)!r} is not a setting of the libraries in use, and no template reads it",
                path=key_path(path, key),
                hint=f"did you mean `{meant}`?",
            )


def _check_value(setting: Setting, value: Any, path: str) -> Iterator[Problem]:
    of = setting.of or SettingType.TEXT
    if setting.type is SettingType.LIST:
        if not isinstance(value, list):
            hint = "write `[a, b]`, or one item a line after `- `"
            yield Problem(message=f"expected a list, found {_describe(value)}", path=path, hint=hint)
            return
        for index, item in enumerate(value):
            yield from _check_one(of, setting, item, item_path(path, index))
    elif setting.type is SettingType.MAPPING:
        if not isinstance(value, dict):
            hint = "write `name: value`, one a line"
            yield Problem(message=f"expected a mapping, found {_describe(value)}", path=path, hint=hint)
            return
        for key, item in value.items():
            if setting.values and key not in setting.values:
                known = ", ".join(setting.values)
                yield Problem(message=f"{shorten(key)!r} is none of {known}", path=key_path(path, key))
            else:
                yield from _check_one(setting.keys, setting, key, key_path(path, key))
                yield from _check_one(of, setting, item, key_path(path, key))
    else:
        yield from _check_one(setting.type, setting, value, path)


def _check_one(kind: SettingType, setting: Setting, value: Any, path: str) -> Iterator[Problem]:
    expected, hint = "", ""
    if kind is SettingType.SWITCH:
        expected = "" if isinstance(value, bool) else "true or false"
    elif kind is SettingType.NUMBER:
        expected, hint = _expected_number(setting, value), _unquoted(value)
    elif setting.values and setting.type is not SettingType.MAPPING:
        expected = "" if value in setting.values else _one_of(setting)
    elif kind is SettingType.NAMESPACES:
        expected, hint = _expected_namespaces(value)
    elif kind in _FITS:
        expected, hint = _expected_text(kind, value)
    if expected:
        found = _describe(value)
        yield Problem(message=f"expected {expected}, found {found}", path=path, hint=hint)


def _expected_number(setting: Setting, value: Any) -> str:
    """Return what *value* should be; empty if it is that."""
    if isinstance(value, bool) or not isinstance(value, int):
        return "a whole number"
    if (setting.min is not None and value < setting.min) or (setting.max is not None and value > setting.max):
        return f"a number {limits_of(setting)}"
    return _one_of(setting) if setting.values and str(value) not in setting.values else ""


def _expected_text(kind: SettingType, value: Any) -> tuple[str, str]:
    """Return what *value* should be and a hint; both empty if it is that."""
    phrase, fits = _FITS[kind]
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return phrase, ""
    try:
        fitting = fits(value) is not None
    except EmitError as exc:
        return phrase, exc.hint
    if fitting:
        return "", ""
    if kind is SettingType.PORT:
        return phrase, _unquoted(value)
    return phrase, f'put it in quotes: "{value}"' if kind is SettingType.TEXT else ""


def _expected_namespaces(value: Any) -> tuple[str, str]:
    """Return what *value* should be and a hint; both empty if it is that."""
    if isinstance(value, list) and all(isinstance(one, str) and (one == "*" or _LABEL(one)) for one in value):
        return "", ""
    return "a list of namespaces", 'write `[shop, billing]`, or `["*"]` for all'


def _one_of(setting: Setting) -> str:
    return f"one of {', '.join(setting.values)}"


def limits_of(setting: Setting) -> str:
    """Return the limits of a number in words, such as `from 1 to 9`; empty without any."""
    if setting.min is not None and setting.max is not None:
        return f"from {setting.min} to {setting.max}"
    if setting.min is not None:
        return f"of at least {setting.min}"
    return f"of at most {setting.max}" if setting.max is not None else ""


def _describe(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the truth value {str(value).lower()}"
        case int() | float():
            return f"the number {shorten(str(value))}"
        case str():
            return f"the text {shorten(repr(value))}"
        case dict():
            return "a mapping"
        case _:
            return "a list"


def _unquoted(value: Any) -> str:
    return "write it without quotes" if isinstance(value, str) and value.isdecimal() else ""


def _meant_by(key: str, settings: Mapping[str, Setting]) -> str:
    folded = {known.casefold(): known for known in settings}
    close = difflib.get_close_matches(key.casefold().replace("_", ""), folded, n=1, cutoff=_ALIKE)
    return folded[close[0]] if close else ""


def _mentions(text: str, key: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(key)}(?![A-Za-z0-9_])", text) is not None


def _time(value: Any) -> object:
    return duration(value) if isinstance(value, str) else None


def _port(value: Any) -> object:
    return port(value) if isinstance(value, int) else None


def _ports(value: Any) -> object:
    try:
        return port_range(value)
    except ValueError:
        return None


def _text(value: Any) -> object:
    return value if isinstance(value, str) else None


def _header_token(value: Any) -> object:
    return header_token(value, "headers")


def _word(value: Any) -> object:
    return _WORD(value) if isinstance(value, str) else None


def _reference(value: Any) -> object:
    return _REFERENCE(value) if isinstance(value, str) else None


_HOLDERS: Final = frozenset({SettingType.LIST, SettingType.MAPPING})
_FITS: Final[Mapping[SettingType, tuple[str, Callable[[Any], object]]]] = {
    SettingType.PORT: ("a port, 1 to 65535", _port),
    SettingType.PORTS: ("a port, 1 to 65535, or a range such as 8000-8999", _ports),
    SettingType.DURATION: ("a time with its unit, such as 30s", _time),
    SettingType.SIZE: ("a size, such as 64k", size),
    SettingType.TEXT: ("text", _text),
    SettingType.WORD: ("text without blanks", _word),
    SettingType.NAME: ("a name of letters, digits, _ . : and -", name),
    SettingType.HEADER: ("the name of a header", header_name),
    SettingType.HEADERS: ("the name of a header, where `*` stands for any characters", _header_token),
    SettingType.ADDRESS: ("an IP address", address),
    SettingType.NETWORK: ("an address or a network, such as 10.0.0.0/8", network),
    SettingType.ENDPOINT: ("a host and a port, such as agent.example.com:9000", host_and_port),
    SettingType.REFERENCE: ("`namespace/name`", _reference),
}
