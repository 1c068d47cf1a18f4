"""Surroundings of the lines in `corpus/lines.txt`: the sections that hold them, and the names that they may use."""

from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

LINES: Final = Path(__file__).with_name("corpus") / "lines.txt"

SURROUNDINGS: Final = """
backend other
  mode http
  stick-table type ip size 1k store gpc0
  server s 127.0.0.1:9
backend plain
  mode tcp
cache store
  total-max-size 4
userlist people
  user a insecure-password b
resolvers names
  nameserver n 127.0.0.1:53
peers group
  peer local 127.0.0.1:19999
http-errors pages
  errorfile 503 /dev/null
mailers post
  mailer m 127.0.0.1:25
ring buffer
  size 32768
fcgi-app php
  docroot /var/www
"""


class Place(NamedTuple):
    """Where lines stand."""

    kind: str
    """The kind of section, or `proxy` where several have the same keywords."""
    head: str
    """What of the section stands above a line."""


PLACES: Final = {
    "global": Place("global", "global\n"),
    "defaults": Place("proxy", "defaults d\n"),
    "http": Place("proxy", "listen x\n  mode http\n  server first 127.0.0.1:1\n  declare capture response len 1\n"),
    "tcp": Place("proxy", "listen x\n  mode tcp\n  filter bwlim-in limit default-limit 1m default-period 1s\n"),
    "userlist": Place("userlist", "userlist x\n  group first\n"),
    "peers": Place("peers", "peers x\n"),
    "resolvers": Place("resolvers", "resolvers x\n"),
    "mailers": Place("mailers", "mailers x\n"),
    "cache": Place("cache", "cache x\n  total-max-size 8\n"),
    "ring": Place("ring", "ring x\n"),
    "log-forward": Place("log-forward", "log-forward x\n  dgram-bind 127.0.0.1:10515\n"),
    "http-errors": Place("http-errors", "http-errors x\n"),
    "program": Place("program", "program x\n  command true\n"),
    "fcgi-app": Place("fcgi-app", "fcgi-app x\n  docroot /\n"),
    "crt-store": Place("crt-store", "crt-store x\n"),
    "log-profile": Place("log-profile", "log-profile x\n"),
    "traces": Place("traces", "traces\n"),
    "acme": Place("acme", "acme x\n  directory https://example.org/dir\n"),
    "healthcheck": Place("healthcheck", "healthcheck x\n"),
    "namespace_list": Place("namespace_list", "namespace_list\n"),
}


def lines_of(place: str) -> list[str]:
    """Return the lines of *place*."""
    return _lines()[place]


@cache
def _lines() -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    place = ""
    for line in LINES.read_text().splitlines():
        if line.startswith("== "):
            place = line.removeprefix("== ")
            lines[place] = []
        elif place:
            lines[place].append(line)
    return lines
