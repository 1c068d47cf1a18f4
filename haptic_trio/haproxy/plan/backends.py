"""Planner for whole backends that appear or disappear at runtime.

A backend can be added if a named defaults section contains all its settings:
its lines are `server` lines only, and its header is `backend <name> from
<defaults>`. It can be deleted under the same condition, unless a rule names
it statically, in which case HAProxy rejects the command.
"""

from haptic_trio.haproxy.config.servers import ServerSettings, names_are_unique
from haptic_trio.haproxy.grammar.placement import read_header
from haptic_trio.haproxy.model import Bases, Section
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import (
    AddBackend,
    DeleteBackend,
    DeleteServer,
    PublishBackend,
    UnpublishBackend,
)
from haptic_trio.haproxy.plan.servers import add_server
from haptic_trio.haproxy.plan.steps import Phase, Step


def add_backend(running: Bases, desired: Bases, section: Section, capabilities: Capabilities) -> list[Step] | None:
    """Return the steps that add *section*; None if a reload is needed.

    *running* are the `defaults` sections of the process, *desired* those of
    the desired configuration.
    """
    if not (capabilities.backends and _is_plain(running, section) and _is_plain(desired, section)):
        return None
    settings = ServerSettings(desired, section)
    members = settings.members(section)
    mode = settings.last("mode")
    if settings.disabled or not names_are_unique(members) or (members and not settings.takes_weights):
        return None
    if mode is not None and (mode.raw or mode.words[1:] not in {("http",), ("tcp",)}):
        return None
    base = read_header(section.header.words).base
    steps: list[Step] = [(Phase.ADD, AddBackend(section.name, base, mode.words[1] if mode is not None else "tcp"))]
    for member in members:
        added = add_server(section.name, member, capabilities)
        if added is None:
            return None
        steps += added
    return [*steps, (Phase.PUBLISH, PublishBackend(section.name))]


def delete_backend(running: Bases, section: Section, capabilities: Capabilities) -> list[Step] | None:
    """Return the steps that delete *section*; None if a reload is needed."""
    if not (capabilities.backends and _is_plain(running, section)):
        return None
    members = ServerSettings(running, section).members(section)
    return [
        (Phase.UNPUBLISH, UnpublishBackend(section.name)),
        *((Phase.REMOVE, DeleteServer(section.name, member.name)) for member in members),
        (Phase.REMOVE, DeleteBackend(section.name)),
    ]


def _is_plain(defaults: Bases, section: Section) -> bool:
    """Whether *section* has no settings besides its servers and those of one section of *defaults*."""
    if section.kind != "backend" or section.header.raw or len(section.header.words) != 4:
        return False
    base = read_header(section.header.words).base
    if not base or any(line.keyword != "server" or len(line.words) < 3 for line in section.directives):
        return False
    # The process does not report which of several sections of one name, or which branch of an `.if`, it has read.
    return sum(one.name == base for one in defaults) == 1 and ServerSettings(defaults, section).is_certain
