"""Tests that travel with a configuration: rendering, assertions and results."""
