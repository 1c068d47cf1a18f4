"""Fixtures of the dataplane tests."""

from tests.support.processes.haproxy import haproxy_binary, instance_root

__all__ = ["haproxy_binary", "instance_root"]
