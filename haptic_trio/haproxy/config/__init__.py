"""haproxy.cfg and its files as data: parsing, checking between sections, writing."""
