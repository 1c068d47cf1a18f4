"""Ingress decisions without I/O: which are served, and which of several has a host, its paths and its certificate."""
