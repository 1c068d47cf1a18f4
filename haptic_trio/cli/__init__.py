"""Command line: one module for each subcommand."""
