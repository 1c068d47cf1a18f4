"""Options in groups, as the help of `serve` lists them."""

import click
import pytest
from click.testing import CliRunner

from haptic_trio.cli.serve import serve
from haptic_trio.cli.serving.option_groups import GROUPS, GroupedCommand
from tests.cli.commands import invoke_cli


@click.command(cls=GroupedCommand, groups={"Files": ["--output", "--input"]})
@click.option("--input", help="Where from.")
@click.option("--verbose", is_flag=True, help="Say more.")
@click.option("--output", help="Where to.")
@click.option("--secret-switch", hidden=True)
def copy(**_options: object) -> None:
    """Copy."""


def test_help_lists_the_options_of_each_group_and_then_the_others() -> None:
    lines = [line.split("  ")[:2] for line in CliRunner().invoke(copy, ["--help"]).output.splitlines()]

    assert lines[4:] == [
        ["Files:"], ["", "--output TEXT"], ["", "--input TEXT"], [""],
        ["Other options:"], ["", "--verbose"], ["", "--help"],
    ]  # fmt: skip


def test_each_option_of_serve_is_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]

    assert sorted(grouped) == sorted(option.opts[0] for option in serve.params)


@pytest.mark.parametrize("title", GROUPS)
def test_help_of_serve_has_a_section_for_each_group(title: str) -> None:
    assert f"\n{title}:\n" in invoke_cli("serve", "--help").output
