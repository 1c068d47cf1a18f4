"""Dry runs: what a change of one object would lead to, without making it."""
