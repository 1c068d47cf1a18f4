"""Entry point of `haptic-trio`. The program is imported inside `main`, where Ctrl-C is already handled."""

import sys
from io import TextIOWrapper

from haptic_trio.cli.exits import report_interrupted, wants_json


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal encoding may lack a character; that must not end the command. Tests replace the streams.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from haptic_trio.cli.app import run  # noqa: PLC0415  slow

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = report_interrupted(as_json=wants_json(sys.argv[1:]))
    sys.exit(code)
