"""Encoder of configuration parts to plain data."""

from typing import Any

import msgspec

from haptic_trio.config.duration import encode_duration
from haptic_trio.config.model import Duration


def encode_value(value: object) -> Any:
    """Return *value*, any part of a configuration, as JSON knows it; durations become text."""
    return msgspec.to_builtins(value, enc_hook=_encode_custom)


def _encode_custom(value: object) -> Any:
    if isinstance(value, Duration):
        return encode_duration(value)
    raise NotImplementedError(f"no way to encode {type(value).__name__}")
