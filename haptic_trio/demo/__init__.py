"""The demo: a running example of the controller with a story to follow."""
