"""Exit codes, and the report of an interruption. Imports no other module, so that it is usable at any time."""

import sys

EXIT_PROBLEMS = 1
"""The input was read and has problems."""
EXIT_FAILED = 2
"""The command failed: wrong usage, a missing file, no HAProxy."""
EXIT_INTERRUPTED = 130
"""Ctrl-C ended the command; the code that shells use for SIGINT."""


def report_interrupted(*, as_json: bool) -> int:
    """Report the interruption on standard error and return `EXIT_INTERRUPTED`."""
    # Same form as `output.failures`, which may not have been imported yet.
    text = '{\n  "errors": [\n    {\n      "message": "interrupted"\n    }\n  ]\n}' if as_json else "error: interrupted"
    print(text, file=sys.stderr)
    return EXIT_INTERRUPTED


def wants_json(arguments: list[str]) -> bool:
    """Return whether *arguments* request JSON, without parsing them: they may be invalid."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)
    return any(one == "--output=json" or (one == "--output" and value == "json") for one, value in pairs)
