"""Access to HAProxy: files, sockets, processes."""
