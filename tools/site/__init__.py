"""Tools that make the documentation site of docs/: see `make site`."""
