"""Semantic checks of a configuration."""
