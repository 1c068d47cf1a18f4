"""Benchmark of requests: the cost of one request in HAProxy."""
