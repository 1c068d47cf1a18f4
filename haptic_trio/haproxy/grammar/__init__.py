"""The grammar of haproxy.cfg: keywords, options, conditions and expressions."""
