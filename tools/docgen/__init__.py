"""Generators of the reference pages below docs/."""
