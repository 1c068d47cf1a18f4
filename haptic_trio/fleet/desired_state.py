"""Desired state of a group, merged from configuration, command line and user overrides."""

import hashlib
import math
from pathlib import Path

import msgspec

from haptic_trio.config.model import InstancesConfig
from haptic_trio.fleet.model import GroupKey, GroupSpec
from haptic_trio.logs import get_logger
from haptic_trio.state_files.reader import load_state_file
from haptic_trio.state_files.writer import replace_file


class SizeOverride(msgspec.Struct, frozen=True, kw_only=True):
    """A size requested by a user; valid as long as the configured size stays the same."""

    size: int
    instead_of: int
    """Configured size at the time of the request."""


class DesiredGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All sources of the desired state of a group."""

    key: GroupKey
    default_size: int
    """Size if the configuration sets none."""
    needs_template: bool = False
    """Whether the group exists only if the configuration names a PodTemplate."""
    config: InstancesConfig | None = None
    """None until a configuration is loaded."""
    basis: str = ""
    """Hash of the inputs of an instance apart from the configuration, such as its binary; empty until known."""
    size_override: SizeOverride | None = None
    waited: float = math.inf
    """Seconds until the first valid generation; no instance can become ready before. Infinity until then."""

    @property
    def configured_size(self) -> int:
        """Size by configuration and command line."""
        if self.config is None or self.config.size is None:
            return self.default_size
        return self.config.size

    @property
    def size(self) -> int:
        """Desired number of instances: the override if it is still valid, else the configured size."""
        override = self.size_override
        is_valid = override is not None and override.instead_of == self.configured_size
        return override.size if override is not None and is_valid else self.configured_size

    def spec(self) -> GroupSpec | None:
        """Return the specification of the group; None until all its inputs are known."""
        config = self.config
        if config is None or not self.basis or (self.needs_template and not config.pod_template):
            return None
        return GroupSpec(
            key=self.key,
            size=self.size,
            surge=config.surge,
            config_hash=hashlib.blake2b(f"{self.basis} {config.revision}".encode(), digest_size=8).hexdigest(),
            drain_timeout=float(config.drain_timeout),
            # Instances that were created before the first generation get that much longer to start.
            start_timeout=float(config.start_timeout) + self.waited,
            eligible_age=float(config.max_age),
            forced_age=float(config.forced_age),
            health_interval=float(config.health_interval),
            missed=config.missed,
        )


def read_size_override(path: Path) -> SizeOverride | None:
    """Return the override in the file at *path*; None if it is missing, or unusable, which is logged. Blocks."""
    return load_state_file(path, SizeOverride, get_logger("fleet"))


def write_size_override(path: Path, override: SizeOverride | None) -> None:
    """Write *override* durably to *path*; None removes the file. Blocks."""
    if override is None:
        path.unlink(missing_ok=True)
    else:
        replace_file(path, msgspec.json.encode(override))
