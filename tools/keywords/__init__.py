"""Makes the keyword tables of `haptic_trio.haproxy.grammar` from real HAProxy binaries."""
