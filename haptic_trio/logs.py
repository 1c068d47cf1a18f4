"""Structured logging: one configuration for the process, loggers by component name.

In JSON logs a line is an object whose field names are an interface. Console
lines are for people: the event first, then the fields in the order in which
the caller passes them, then times and ids. Each problem has a line of its own.
"""

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from io import TextIOBase
from typing import Any, Final, Literal, TextIO, cast

import structlog
from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter

LogFormat = Literal["console", "json"]
Logger = structlog.typing.FilteringBoundLogger

MAIN: Final = "haptic-trio"
"""Component of most lines; console lines omit it."""

_SHOWN: Final = "shown"
"""Field whose text replaces event and fields in a console line; JSON lines do not have it."""
_PROBLEMS: Final = ("problem", "problems", "warnings")
"""Fields whose values have lines of their own."""
_LAST: Final = (
    *("ms", "render_ms", "parse_ms", "check_ms", "idle_s", "s", "seconds"),
    *("version", "digest", "generation", "correlation", "pid", "identity", "component"),
)
"""Fields at the end of a console line, in this order: durations and ids."""
_INDENT: Final = "    "


def configure_logs(log_format: LogFormat = "console", level: str = "info", *, stream: TextIO | None = None) -> None:
    """Send log lines to *stream* (standard error by default) in *log_format*, from *level* up.

    Times are UTC with the date; on a terminal, console lines have the local time of day.
    """
    stream = stream or cast("TextIO", _StandardError())
    is_for_terminal = log_format == "console" and stream.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_for_terminal else "iso", utc=not is_for_terminal),
        _with_plain_values,
    ]
    if log_format == "json":
        shared += [_without_shown, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        shared.append(_Console(_has_colours(stream)))
    structlog.configure(
        processors=shared,
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    set_level(level)


class _StandardError(TextIOBase):
    """The present `sys.stderr`: a display of progress replaces it, and writes log lines above its own line."""

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def _has_colours(stream: TextIO) -> bool:
    """Whether lines for *stream* are coloured: on terminals, unless `NO_COLOR` or `FORCE_COLOR` is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def set_level(level: str) -> None:
    """Change the minimum level of log lines."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(number))


def get_logger(component: str) -> Logger:
    """Return a logger whose lines carry `component=`."""
    logger: Logger = structlog.get_logger(component=component)
    return logger


def _with_plain_values(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Replace paths, enumerations and other objects by their text, so that no line has the notation of Python."""
    return {name: value if name == "exc_info" else _plain(value) for name, value in event.items()}


def _without_shown(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    event.pop(_SHOWN, None)
    return event


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return str(value)


class _Console:
    """Formats lines for people."""

    def __init__(self, has_colours: bool) -> None:
        styles = ConsoleRenderer.get_default_column_styles(has_colours)
        levels = ConsoleRenderer.get_default_level_styles(has_colours)

        def bare(style: str) -> KeyValueColumnFormatter:
            return KeyValueColumnFormatter(None, style, styles.reset, str)

        def level_of(key: str, value: object) -> str:  # noqa: ARG001  its name is part of the protocol
            level = str(value)
            return f"{levels.get(level, '')}{level.upper():<7}{styles.reset}"

        self._render = ConsoleRenderer(
            columns=[
                Column("timestamp", bare(styles.timestamp)),
                Column("level", level_of),
                Column("event", bare(styles.bright)),
                Column("", KeyValueColumnFormatter(styles.kv_key, styles.kv_value, styles.reset, _quoted)),
            ],
            # The default formatter prints local variables, which may hold Secrets.
            exception_formatter=structlog.dev.plain_traceback,
            sort_keys=False,
        )

    def __call__(self, logger: structlog.typing.WrappedLogger, method: str, event: structlog.typing.EventDict) -> str:
        if _SHOWN in event:
            event = {"timestamp": event["timestamp"], "level": event["level"], "event": _printable(event[_SHOWN])}
        if event.get("component") == MAIN:
            del event["component"]
        rows = [*_take_rows(event)]
        for name in _LAST:
            if name in event:
                event[name] = event.pop(name)
        return "\n".join([self._render(logger, method, event), *(f"{_INDENT}{_printable(row)}" for row in rows)])


def _take_rows(event: structlog.typing.EventDict) -> Iterable[str]:
    """Remove the fields that need lines of their own, and yield these lines."""
    for name, value in [*event.items()]:
        if name in _PROBLEMS and isinstance(value, list | str):
            values = value if isinstance(value, list) else [value]
            yield from (line for each in values for line in str(each).splitlines())
        elif isinstance(value, list) and len(value) > 1 and any(" " in str(each) for each in value):
            yield from (f"{name}: {each}" for each in value)
        else:
            continue
        del event[name]


def _quoted(value: object) -> str:
    """Return the text of a field's value, in quotation marks where it would not be one word."""
    text = _printable(_text(value))
    return f'"{text}"' if " " in text else text


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, dict):
        return ",".join(f"{name}:{_text(each)}" for name, each in value.items())
    return str(value)


def _printable(text: str) -> str:
    """Return *text* without characters that control a terminal or begin a line; they are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
