"""Changes of haproxy.cfg by the last generations."""
