"""Small programs in place of HAProxy, that behave as a test needs it."""

from pathlib import Path


def script(path: Path, body: str) -> Path:
    """Write a shell script that is called as HAProxy would be, and return its path."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path
