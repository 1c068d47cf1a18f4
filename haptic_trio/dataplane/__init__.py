"""Everything that touches an HAProxy: files, sockets, processes."""
