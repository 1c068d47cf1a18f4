"""The real HAProxy, client and servers of a configuration's tests."""
