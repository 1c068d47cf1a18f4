"""Semantic checks of the HTTP fetch settings."""

import re
from collections.abc import Collection, Iterator
from ipaddress import ip_network
from urllib.parse import urlsplit

from haptic_trio.config.model import HttpConfig, HttpResource
from haptic_trio.errors import Problem
from haptic_trio.yaml.paths import item_path

_HOST_PATTERN = re.compile(r"[A-Za-z0-9.*?:_-]{1,253}")


def check_http(http: HttpConfig) -> Iterator[Problem]:
    """Yield what is wrong with the section `http`."""
    for index, network in enumerate(http.allowed_networks):
        path = item_path("http.allowedNetworks", index)
        try:
            ip_network(network)
        except ValueError:
            yield Problem(
                message=f"{network!r} is not a valid network", path=path, hint="such as `127.0.0.0/8` or `::1/128`"
            )
    for index, host in enumerate(http.allowed_hosts):
        if _HOST_PATTERN.fullmatch(host) is None:
            yield Problem(
                message=f"{host!r} is not a valid host name",
                path=item_path("http.allowedHosts", index),
                hint="a name such as `lists.example.com`, or a pattern such as `*.example.com`",
            )


def check_http_resources(path: str, resources: Collection[HttpResource]) -> Iterator[Problem]:
    """Yield what is wrong with what a test has templates fetch."""
    seen = set()
    for index, resource in enumerate(resources):
        where = item_path(path, index)
        if urlsplit(resource.url).scheme not in ("http", "https"):
            yield Problem(message="the URL is neither `http://…` nor `https://…`", path=f"{where}.url")
        if resource.url in seen:
            yield Problem(message="the URL is given twice", path=f"{where}.url")
        seen.add(resource.url)
        if (resource.content is None) is not bool(resource.error):
            yield Problem(message="expected either `content` or `error`", path=where)
