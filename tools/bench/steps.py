"""Announcement of what a benchmark does now."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from haptic_trio.cli.output.progress import showing_steps


@contextmanager
def announcing() -> Iterator[Callable[[str], None]]:
    """Yield a function that prints a line about a step or its figures on standard error.

    On a terminal, the last line shows the time so far, and what is measured:
    the line up to its first colon. Leave the block before printing results.
    """
    with showing_steps(sys.stderr) as steps:

        def say(text: str) -> None:
            click.echo(text, err=True)
            steps.begin(f"measuring {text.partition(': ')[0]}")

        yield say
