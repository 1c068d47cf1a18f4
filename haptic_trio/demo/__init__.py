"""The demo: a running example of the controller with steps to follow."""
