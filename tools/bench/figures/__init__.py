"""Measurements of the benchmark: taking them, summing them up and drawing them."""
