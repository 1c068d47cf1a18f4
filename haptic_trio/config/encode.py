"""A configuration as YAML text again."""

from typing import Any

import msgspec
import yaml

from haptic_trio.config.duration import encode_duration
from haptic_trio.config.model import Config, Duration


def encode_config(config: Config) -> str:
    """Return YAML text that `decode_config` turns into a configuration equal to *config*."""
    # Without escapes PyYAML folds U+0085 and its like, and what is read back differs.
    text: str = yaml.safe_dump(encode_value(config), sort_keys=False, allow_unicode=False, width=120)
    return text


def encode_value(value: object) -> Any:
    """Return *value*, any part of a configuration, as JSON knows it; durations become text."""
    return msgspec.to_builtins(value, enc_hook=_encode_custom)


def _encode_custom(value: object) -> Any:
    if isinstance(value, Duration):
        return encode_duration(value)
    raise NotImplementedError(f"no way to encode {type(value).__name__}")
