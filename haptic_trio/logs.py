"""Structured logging: one configuration for the process, loggers by component name."""

import logging
import os
import sys
from typing import Literal, TextIO

import structlog

LogFormat = Literal["console", "json"]
Logger = structlog.typing.FilteringBoundLogger


def configure_logs(log_format: LogFormat = "console", level: str = "info", *, stream: TextIO | None = None) -> None:
    """Send log lines to *stream* (standard error by default) in *log_format*, from *level* up."""
    stream = stream or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if log_format == "json":
        shared += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # The default formatter prints local variables, which may hold Secrets.
        plain = structlog.dev.plain_traceback
        shared.append(structlog.dev.ConsoleRenderer(colors=_has_colours(stream), exception_formatter=plain))
    structlog.configure(
        processors=shared,
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    set_level(level)


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
