"""Desired state of a group, merged from configuration, command line and user overrides."""

import hashlib
import math
from pathlib import Path

import msgspec

from haptic_trio.config.model import InstancesConfig
from haptic_trio.dataplane.disk import replace_file
from haptic_trio.fleet.model import GroupKey, GroupSpec


class SizeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A size that somebody has asked for; it holds for as long as the configuration says what it said then."""

    size: int
    instead_of: int
    """What the configuration said."""


class GroupWish(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that has a say in what a group shall be."""

    key: GroupKey
    default_size: int
    """Where the configuration says nothing."""
    needs_template: bool = False
    """Whether instances are made only where the configuration names a PodTemplate."""
    config: InstancesConfig | None = None
    """None until a configuration has come up."""
    basis: str = ""
    """Hash of what instances are made from, apart from the configuration; empty until it is known."""
    order: SizeOrder | None = None
    waited: float = math.inf
    """Seconds for which there was no generation that an instance could have become ready with."""

    @property
    def configured_size(self) -> int:
        """Instances that the configuration wants."""
        if self.config is None or self.config.size is None:
            return self.default_size
        return self.config.size

    @property
    def size(self) -> int:
        """Instances that are wanted."""
        order = self.order
        return order.size if order is not None and order.instead_of == self.configured_size else self.configured_size

    def spec(self) -> GroupSpec | None:
        """Return what the group shall be; None as long as that is not known."""
        config = self.config
        if config is None or not self.basis or (self.needs_template and not config.pod_template):
            return None
        return GroupSpec(
            key=self.key,
            size=self.size,
            surge=config.surge,
            config_hash=hashlib.blake2b(f"{self.basis} {config.revision}".encode(), digest_size=8).hexdigest(),
            drain_timeout=float(config.drain_timeout),
            # Whoever was made before there was anything to start with has that much longer.
            start_timeout=float(config.start_timeout) + self.waited,
            eligible_age=float(config.max_age),
            forced_age=float(config.forced_age),
            health_interval=float(config.health_interval),
            missed=config.missed,
        )


def read_order(path: Path) -> SizeOrder | None:
    """Return the order in the file at *path*; None when there is none that makes sense. Blocks."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SizeOrder)
    except (OSError, msgspec.MsgspecError):
        return None


def write_order(path: Path, order: SizeOrder | None) -> None:
    """Have *order*, or none, on the disk; blocks."""
    if order is None:
        path.unlink(missing_ok=True)
    else:
        replace_file(path, msgspec.json.encode(order))
