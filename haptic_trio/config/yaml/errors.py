"""Error for an invalid configuration."""

from haptic_trio.errors import ProblemsError


class ConfigInvalidError(ProblemsError):
    """The configuration or its Secret was refused, with every problem found; trying again helps only after an edit."""
