"""Keyed work: deduplicated, delayed, retried with backoff, never twice at once, and controllers that feed on it."""
