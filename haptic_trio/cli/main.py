"""The door: one command with a verb for each thing that a person does."""

import sys

import click

from haptic_trio import __version__
from haptic_trio.cli.agent import agent
from haptic_trio.cli.bench import bench
from haptic_trio.cli.completion import completion
from haptic_trio.cli.debug import debug
from haptic_trio.cli.demo import demo
from haptic_trio.cli.diff import diff
from haptic_trio.cli.explain import explain
from haptic_trio.cli.fleet import fleet
from haptic_trio.cli.new import new
from haptic_trio.cli.render import render
from haptic_trio.cli.serve import serve
from haptic_trio.cli.test import test
from haptic_trio.cli.validate import validate
from haptic_trio.cli.version import version
from haptic_trio.errors import HapticError, ProblemsError, leaves_of

EXIT_PROBLEMS = 1
"""The input was read, and something is wrong with it."""
EXIT_FAILED = 2
"""The command could not do its work: wrong usage, a missing file, no HAProxy."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="haptic-trio")
def cli() -> None:
    """Keep HAProxy in the state that Jinja2 templates over your resources describe.

    \b
    Start here:
      haptic-trio demo                       a running example on this machine
      haptic-trio new DIR                    a starting configuration, with something to serve
      haptic-trio validate --manifests DIR   is what is in DIR good?
      haptic-trio test --manifests DIR       do its own tests pass?
      haptic-trio render --manifests DIR     what would HAProxy get?
      haptic-trio diff --help                what would a change change, and would HAProxy reload?
      haptic-trio explain --help             which object and template made this line, or this route?
      haptic-trio serve --manifests DIR      keep local HAProxy processes in step with DIR
      haptic-trio agent --help               keep HAProxy on other machines in step, too
      haptic-trio fleet list                 which HAProxy processes does `serve` keep?
      haptic-trio debug                      what does `serve` do right now?

    DIR holds Kubernetes manifests; one of them is the ConfigMap with the
    configuration. Exit codes: 0 all is well, 1 the input has problems,
    2 the command could not do its work.
    """


for command in (
    agent,
    bench,
    completion,
    debug,
    demo,
    diff,
    explain,
    fleet,
    new,
    render,
    serve,
    test,
    validate,
    version,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        cli.main(prog_name="haptic-trio", standalone_mode=True)
    except* ProblemsError as group:
        sys.exit(_print_errors(group, EXIT_PROBLEMS))
    except* (HapticError, OSError) as group:
        sys.exit(_print_errors(group, EXIT_FAILED))


def _print_errors(group: BaseExceptionGroup[BaseException], code: int) -> int:
    for error in leaves_of(group):
        lines = [str(problem) for problem in error.problems] if isinstance(error, ProblemsError) else [str(error)]
        for line in lines:
            click.secho(f"error: {line}", fg="red", err=True)
    return code
