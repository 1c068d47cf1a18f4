"""Fetched contents in the pipeline: the store of an iteration, and its policy."""
