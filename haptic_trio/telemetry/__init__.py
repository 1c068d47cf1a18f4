"""Metrics and traces, made from the messages that the commentator passes on."""
