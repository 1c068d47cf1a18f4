"""Error for an invalid configuration."""

from haptic_trio.errors import ProblemsError


class ConfigInvalidError(ProblemsError):
    """The configuration or its Secret is invalid; has every problem found. Trying again helps only after an edit."""
