"""The real HAProxy."""

from tests.support.haproxy import haproxy_binary

__all__ = ["haproxy_binary"]
