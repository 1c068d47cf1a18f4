"""Fetched contents in the pipeline: the store of an iteration, its policy, and the trial of a pending content."""
