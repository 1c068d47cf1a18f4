"""Root click group; subcommands are imported lazily."""

from importlib import import_module

import click

from haptic_trio import __version__
from haptic_trio.cli.exits import EXIT_FAILED, EXIT_PROBLEMS, report_interrupted, wants_json
from haptic_trio.cli.output.failures import failures_of, print_failures, words_of
from haptic_trio.errors import HapticError, ProblemsError, leaves_of

SUMMARIES = {
    "agent": "Run an HAProxy for a controller on another machine.",
    "completion": "Print a shell completion script.",
    "debug": "Show what a running controller does.",
    "demo": "Run a complete example on this machine.",
    "diff": "Show what a change would do to HAProxy.",
    "explain": "Find the object and template of a line or route.",
    "fleet": "List, replace and resize HAProxy instances.",
    "new": "Write a starting configuration.",
    "render": "Print the HAProxy configuration.",
    "serve": "Run the controller: keep HAProxy in sync with a cluster.",
    "test": "Run the tests of a configuration.",
    "validate": "Report every problem at once.",
    "version": "Show the versions of haptic-trio and HAProxy.",
}
"""All subcommands, each with its line in the list of commands."""

_MODULES = {"demo": "haptic_trio.demo.command"}
"""Modules of subcommands that are not `haptic_trio.cli.NAME`; the command is named like the subcommand in each."""


class RootGroup(click.Group):
    """Imports a subcommand when it is used, so that completion in a shell stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all subcommands."""
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the subcommand *cmd_name*, or None."""
        if cmd_name not in SUMMARIES:
            return None
        module = _MODULES.get(cmd_name, f"haptic_trio.cli.{cmd_name}")
        command: click.Command = getattr(import_module(module), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that *args* begin with; raises `NoSuchCommand` with similar names."""
        if args[0] not in SUMMARIES and args[0][:1].isalnum():
            raise click.exceptions.NoSuchCommand(args[0], possibilities=SUMMARIES, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="haptic-trio")
def cli() -> None:
    """Keep HAProxy in the state that Jinja2 templates over your resources describe.

    \b
    Start here:
      haptic-trio demo                       a running example on this machine
      haptic-trio new DIR                    a starting configuration, with something to serve
      haptic-trio validate --manifests DIR   report every problem in DIR
      haptic-trio test --manifests DIR       run the tests of the configuration in DIR
      haptic-trio render --manifests DIR     print the HAProxy configuration
      haptic-trio diff --help                show what a change would do, and whether HAProxy would reload
      haptic-trio explain --help             find the object and template of a line or route
      haptic-trio serve --manifests DIR      keep local HAProxy processes in sync with DIR
      haptic-trio agent --help               run HAProxy on other machines
      haptic-trio fleet list                 list the HAProxy processes of `serve`
      haptic-trio debug                      show what `serve` is doing

    DIR holds Kubernetes manifests; one of them is the ConfigMap with the
    configuration. Exit codes: 0 success, 1 the input has problems,
    2 the command failed.
    """


def run(arguments: list[str]) -> int:
    """Run the command line *arguments*, print errors to standard error, and return the exit code."""
    as_json = wants_json(arguments)
    code = 0
    try:
        # In standalone mode, click prints usage errors as text only and exits with 1 after an interruption.
        code = cli.main(arguments, prog_name="haptic-trio", standalone_mode=False) or 0
    except* ProblemsError as group:
        code = _report(group, EXIT_PROBLEMS, as_json=as_json)
    except* (HapticError, OSError, ModuleNotFoundError, click.ClickException) as group:
        code = _report(group, EXIT_FAILED, as_json=as_json)
    except* (click.Abort, KeyboardInterrupt):
        code = report_interrupted(as_json=as_json)
    return code


def _report(group: BaseException, code: int, *, as_json: bool) -> int:
    if as_json:
        print_failures(failures_of(group))
        return code
    for error in leaves_of(group):
        if isinstance(error, click.ClickException):
            error.show()
            continue
        lines = [str(problem) for problem in error.problems] if isinstance(error, ProblemsError) else [words_of(error)]
        for line in lines:
            click.secho(f"error: {line}", fg="red", err=True)
    return code
