"""Tools that build a release and verify it: see `make release-check`."""
