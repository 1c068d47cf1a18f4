"""Incremental rendering: fragments, recorded lookups, and what is rendered again."""
