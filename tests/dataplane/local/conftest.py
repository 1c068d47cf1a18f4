"""Fixtures of the tests of local instances."""

from tests.support.processes.read_only import read_only

__all__ = ["read_only"]
