"""The reference of all commands as Markdown, made from what click knows of them."""

import inspect
import textwrap
from collections.abc import Iterator

import click

from haptic_trio.cli.app import cli
from haptic_trio.cli.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PROBLEMS
from tools.docgen.configuration import cell
from tools.docgen.markdown import table

_HEAD = f"""\
# Commands

After reading this page you can use every command and option of `haptic-trio`, and evaluate its output and exit code in
scripts. `haptic-trio COMMAND --help` prints the same reference. An option on the command line takes precedence over its
environment variable.

## Exit codes

| Code | Meaning |
|---|---|
| 0 | All is well. |
| {EXIT_PROBLEMS} | Something is wrong with the input. `diff`: something would change. `test`: a test failed. |
| {EXIT_FAILED} | The command could not do its work: wrong usage, a missing file, no HAProxy, no answer. |
| {EXIT_INTERRUPTED} | Ctrl-C came before it was done. `serve`, `agent`, `demo` and `debug`, once they run: 0. |

## For machines

With `--output json` a command writes one JSON document to standard output (`debug events`, and views that go on: one on
each line). Fields may be added; those that are there keep their meaning. A command that has no document to give leaves
standard output empty, and writes one to standard error:

```json
{{"errors": [{{"message": "unknown field", "source": "ConfigMap default/haptic-trio", "line": 1, "column": 1,
             "path": "templatin", "hint": "did you mean `templating`?"}}]}}
```

`message` is always there; `source`, `line`, `column`, `path`, `hint`, `excerpt`, `subject` (the object) and
`suggestions` where they are known. The exit code is the same with and without JSON. Colours are for terminals alone.
"""
_VALUES = {"INTEGER": "NUMBER", "INTEGER RANGE": "NUMBER", "FLOAT RANGE": "NUMBER"}


def commands_page() -> str:
    """Return the page."""
    sections = [_section(path, command) for path, command in commands_in("haptic-trio", cli)]
    return "\n".join([_HEAD, *sections])


def commands_in(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield *command* and those below it, each with how it is called."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands_in(f"{path} {name}", inner)


def _section(path: str, command: click.Command) -> str:
    # As the program itself has it: click keeps what it makes of this at the command.
    context = click.Context(command, info_name=path, help_option_names=["-h", "--help"])
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"## {path}", f"```text\n{usage}\n```", *_paragraphs(command.help or "")]
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    options = [
        parameter for parameter in command.params if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    if documented := [_argument_row(argument, context) for argument in arguments if argument.nargs == -1]:
        parts.append("\n".join(documented))
    if options:
        rows = [_option_row(option, context) for option in options]
        parts.append(table(("Option", "Default", "Environment", "Meaning"), rows).strip())
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those that keep their lines are blocks."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{textwrap.dedent(paragraph[2:]).rstrip()}\n```"
        else:
            yield " ".join(paragraph.split())


def _argument_row(argument: click.Argument, context: click.Context) -> str:
    return f"`{argument.make_metavar(context)}` may be several words."


def _option_row(option: click.Option, context: click.Context) -> tuple[str, str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if not option.is_flag:
        names += f" `{_VALUES.get(value := option.make_metavar(context), value)}`"
    notes = [option.help or ""]
    if option.required:
        notes.append("Required.")
    if option.multiple and "several" not in notes[0] and "repeated" not in notes[0]:
        notes.append("May be given several times.")
    variable = f"`{option.envvar}`" if isinstance(option.envvar, str) else ""
    return cell(names), _default(option), variable, cell(" ".join(filter(None, notes)))


def _default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        # Written by hand, with its own marks where it needs them.
        return cell(option.show_default)
    if option.show_default and option.default not in (None, "", ()):
        return f"`{option.default}`"
    return ""
