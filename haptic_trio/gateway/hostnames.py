"""Host names of listeners and routes: intersection and specificity."""

import re
from collections.abc import Iterator
from typing import Final

ANY: Final = ""
"""Stands for every host."""
_HOSTNAME: Final = re.compile(
    r"(?:\*\.)?[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
).fullmatch


def is_hostname(text: str) -> bool:
    """Whether *text* is a lower-case host name, which may begin with `*.`."""
    return len(text) <= 253 and _HOSTNAME(text) is not None


def covers(wide: str, narrow: str) -> bool:
    """Whether *wide* matches all hosts that *narrow* matches; `*.` matches one or more labels."""
    if wide in (ANY, narrow):
        return True
    return wide.startswith("*.") and narrow.removeprefix("*").endswith(wide[1:]) and len(narrow) > len(wide) - 1


def intersection(one: str, other: str) -> str | None:
    """Return the hosts that both *one* and *other* match, as a host name; None if there are none."""
    if covers(one, other):
        return other
    return one if covers(other, one) else None


def specificity(hostname: str) -> tuple[bool, int]:
    """Return the sort key of a host name: greater is more specific."""
    return bool(hostname) and not hostname.startswith("*."), len(hostname)


def wider(hostname: str) -> Iterator[str]:
    """Yield the wildcards that cover *hostname*, without itself, the most specific one first."""
    labels = hostname.removeprefix("*.").split(".") if hostname else []
    for index in range(0 if hostname.startswith("*.") else 1, len(labels)):
        wildcard = "*." + ".".join(labels[index:])
        if wildcard != hostname:
            yield wildcard
