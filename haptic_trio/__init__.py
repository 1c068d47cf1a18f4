"""haptic-trio: HAProxy fleets kept in the state that templates over watched resources describe."""

__version__ = "0.1.0"
