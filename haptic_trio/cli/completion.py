"""`completion`: prints shell completion for all subcommands and options."""

import click
from click.shell_completion import get_completion_class

from haptic_trio.errors import HapticError

VARIABLE = "_HAPTIC_TRIO_COMPLETE"
"""Environment variable that requests completion; click derives it from the program name."""


class UnknownShellError(HapticError):
    """The shell is not supported; permanent."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes subcommands, options and their values.

    \b
      source <(haptic-trio completion bash)                                       in ~/.bashrc
      source <(haptic-trio completion zsh)                                        in ~/.zshrc
      haptic-trio completion fish > ~/.config/fish/completions/haptic-trio.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise UnknownShellError(f"there is no completion for {shell}")
    root = context.find_root()
    click.echo(found(root.command, {}, "haptic-trio", VARIABLE).source())
