"""Debounce, render, validate: from a change to a configuration that may be deployed."""
