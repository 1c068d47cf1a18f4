"""Certificates, keys and bundles in PEM: reading with bounded cost, names, and what is unreadable."""
