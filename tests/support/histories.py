"""Number of random histories that a test of a state machine tries."""

from typing import Final

from hypothesis import settings

HISTORIES: Final = 10 * settings.default.max_examples if settings.default else 500
"""500 in `make test`, from a fixed seed; 20,000 in `make test-deep`."""
