"""Results of commands for terminals, and as JSON."""
