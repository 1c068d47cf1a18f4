"""The line that ends the start of `serve`: what HAProxy serves, and where."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

import msgspec

from haptic_trio import messages as m
from haptic_trio.cli.output.findings import quantity
from haptic_trio.cli.serving.console import NoConsole
from haptic_trio.explain import base_maps, gateway_maps
from haptic_trio.haproxy.config.servers import ServerSettings
from haptic_trio.haproxy.model import Config, Generation, Section
from haptic_trio.logs import MAIN, get_logger

_ROUTES: Final = frozenset({base_maps.EXACT, base_maps.PREFIX, gateway_maps.EXACT, gateway_maps.PREFIX})
"""Maps with an entry for each route."""
_MOST_SHOWN: Final = 4
_EVERYWHERE: Final = ("", "*")
_METRICS: Final = "prometheus-exporter"
_TLS_HELLO: Final = ("req.ssl_sni", "req.ssl_hello_type")


class Announcement:
    """An observer of events that logs `serving` once, when all instances of the start have a configuration.

    *count_wanted* returns the number of these instances. If a deployment fails on some of them, it is logged
    as soon as another one serves. *shows_token*: the text for people has the token of *console*, for terminals.
    """

    def __init__(self, count_wanted: Callable[[], int], console: NoConsole, *, shows_token: bool) -> None:
        self._count_wanted = count_wanted
        self._console = console
        self._shows_token = shows_token
        self._generation: Generation | None = None
        self._deployed: set[str] = set()
        self._is_done = False

    def take(self, event: msgspec.Struct) -> None:
        """Note *event*, and log if it ends the start."""
        if self._is_done:
            return
        match event:
            case m.ConfigPrepared() | m.ConfigValidated():
                self._generation = event.generation
            case m.EndpointLost():
                self._deployed.discard(event.endpoint)
            case m.InstanceDeployed():
                self._deployed.add(event.result.endpoint)
            case m.DeploymentCompleted() if self._deployed and self._generation is not None:
                if event.failed or len(self._deployed) >= self._count_wanted():
                    self._log(self._generation)
                    self._is_done, self._generation = True, None

    def _log(self, generation: Generation) -> None:
        addresses, routes, instances = addresses_of(generation.config), count_routes(generation), len(self._deployed)
        console = self._console.page
        shown = f"Serving {_listed(addresses)}: {quantity(routes, 'route')}, {quantity(instances, 'instance')}."
        if not routes:
            shown += " `haptic-trio validate` says which objects are not served, and why."
        if console:
            token = f"#token={quote(self._console.token, safe='')}" if self._shows_token else ""
            shown += f" Console: {console}{token}"
        get_logger(MAIN).info(
            "serving", addresses=addresses, routes=routes, instances=instances, console=console, shown=shown
        )


def addresses_of(config: Config) -> list[str]:
    """Return the URLs at which *config* takes connections of clients, in its order, without sockets and metrics."""
    frontends = [section for kind in ("frontend", "listen") for section in config.all(kind)]
    return [*dict.fromkeys(chain.from_iterable(_addresses_in(section, config) for section in frontends))]


def _addresses_in(section: Section, config: Config) -> Iterator[str]:
    words = {word for line in section.directives for word in line.words}
    if _METRICS in words:
        return
    for line in section.directives:
        # Another frontend passes connections on to a bind line with `accept-proxy`.
        if line.keyword != "bind" or len(line.words) < 2 or "accept-proxy" in line.words:
            continue
        if "ssl" in line.words or not words.isdisjoint(_TLS_HELLO):
            scheme = "https"
        else:
            scheme = "http" if _mode_of(section, config) == "http" else "tcp"
        for place in line.words[1].split(","):
            host, colon, port = place.rpartition(":")
            if colon and "@" not in place and not place.startswith("/"):
                yield f"{scheme}://{'0.0.0.0' if host in _EVERYWHERE else host}:{port}"  # noqa: S104  it is shown


def _mode_of(section: Section, config: Config) -> str:
    mode = ServerSettings(config.bases, section).last("mode")
    return mode.words[1] if mode is not None and len(mode.words) > 1 else "tcp"


def count_routes(generation: Generation) -> int:
    """Return the number of hosts and paths, and of matches of Gateway routes, that *generation* has an entry for."""
    maps = (file for path, file in generation.files.items() if PurePosixPath(path).name in _ROUTES)
    # Not parsed: this runs in the event loop, and a map may have 20,000 entries.
    lines = chain.from_iterable(file.content.split(b"\n") for file in maps)
    return sum(not line.startswith(b"#") and not line.isspace() and line != b"" for line in lines)


def _listed(addresses: list[str]) -> str:
    shown = addresses[:_MOST_SHOWN] or ["no address"]
    if len(addresses) > _MOST_SHOWN:
        shown.append(f"{len(addresses) - _MOST_SHOWN} more")
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
