"""Rendering of results for terminals and as JSON."""
