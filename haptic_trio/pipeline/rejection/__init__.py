"""Rejected output: its errors, the search for the object at fault, and the quarantine of objects."""
