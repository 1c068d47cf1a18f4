"""Filters and emitters: how values of resources become output."""
