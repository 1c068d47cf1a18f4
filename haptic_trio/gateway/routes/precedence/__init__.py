"""Precedence of routes: which of several that have a host name or a path in common is served."""
