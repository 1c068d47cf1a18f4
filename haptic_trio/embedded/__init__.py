"""Tests that travel with a configuration: what they render, what they ask a real HAProxy, and what came of it."""
