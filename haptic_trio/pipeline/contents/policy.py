"""Policy for contents that templates may fetch, read from the configuration."""

import re
from ipaddress import ip_network
from typing import Final

from haptic_trio.config.model import Config, HttpConfig
from haptic_trio.config.templates import template_set
from haptic_trio.httpstore.request import FetchPolicy

_FETCHES: Final = re.compile(r"\bhttp\s*\.\s*fetch\b").search


def fetch_policy(http: HttpConfig) -> FetchPolicy:
    """Return the fetch policy of *http*, which must be valid."""
    return FetchPolicy(
        allowed_hosts=http.allowed_hosts,
        allowed_networks=tuple(map(ip_network, http.allowed_networks)),
        max_bytes=http.max_bytes,
        max_timeout=http.max_timeout,
        min_interval=http.min_interval,
        max_contents=http.max_contents,
        max_concurrent=http.max_concurrent,
    )


def fetches(config: Config) -> bool:
    """Whether the text of any template of *config* contains `http.fetch`."""
    return any(_FETCHES(text) is not None for text in template_set(config).texts.values())
