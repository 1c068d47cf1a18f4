"""Exit codes, and the report of an interruption. Imports no other module, so that it is ready before the program."""

import sys

EXIT_PROBLEMS = 1
"""The input was read and has problems."""
EXIT_FAILED = 2
"""The command could not do its work: wrong usage, a missing file, no HAProxy."""
EXIT_INTERRUPTED = 130
"""Ctrl-C ended the command before it was done; the code that shells use for SIGINT."""


def report_interrupted(*, as_json: bool) -> int:
    """Report on standard error that the command was interrupted, and return the exit code for that."""
    # The same form as other failures, written by hand: their module may not have been imported yet.
    text = '{\n  "errors": [\n    {\n      "message": "interrupted"\n    }\n  ]\n}' if as_json else "error: interrupted"
    print(text, file=sys.stderr)
    return EXIT_INTERRUPTED


def wants_json(arguments: list[str]) -> bool:
    """Return whether a command line asks for JSON; it is read as it stands, since the line itself may be wrong."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)
    return any(one == "--output=json" or (one == "--output" and value == "json") for one, value in pairs)
