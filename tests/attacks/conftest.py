from tests.support.processes.haproxy import haproxy_binary

__all__ = ["haproxy_binary"]
