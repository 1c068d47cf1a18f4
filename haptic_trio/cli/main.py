"""Entry point of `haptic-trio`. The program is imported inside `main`, where Ctrl-C is already handled."""

import sys
from io import TextIOWrapper

EXIT_INTERRUPTED = 130
"""It was interrupted by Ctrl-C before it was done, as shells know it."""


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal of old may not know a character; that must not end the command. Tests put other things there.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from haptic_trio.cli.app import run  # noqa: PLC0415  this is what takes the time until anything else runs

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = tell_interrupted(as_json=wants_json(sys.argv[1:]))
    sys.exit(code)


def tell_interrupted(*, as_json: bool) -> int:
    """Say on standard error that the command was interrupted, and return the exit code of that."""
    # As what tells of other failures would have it; that may not have been imported.
    said = '{\n  "errors": [\n    {\n      "message": "interrupted"\n    }\n  ]\n}' if as_json else "error: interrupted"
    print(said, file=sys.stderr)
    return EXIT_INTERRUPTED


def wants_json(arguments: list[str]) -> bool:
    """Whether a command line asks for JSON; it is looked at as it stands: what is wrong may be the line itself."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)
    return any(one == "--output=json" or (one == "--output" and value == "json") for one, value in pairs)
