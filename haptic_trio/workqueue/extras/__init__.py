"""Additions to the work queue library that haptic-trio itself does not use: sources, triggers, further limiters."""
