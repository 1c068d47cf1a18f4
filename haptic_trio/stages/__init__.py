"""The three lifetimes: iteration, its five startup stages, and the leadership term."""
