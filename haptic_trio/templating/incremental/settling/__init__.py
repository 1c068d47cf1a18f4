"""Decisions after everything has been rendered: which objects have what only some of them can have."""
