"""Makes the keyword tables of `haptic_trio.haproxy.grammar.placement` from real HAProxy binaries."""
