"""The table of values in the chart's README, from the comments of `values.yaml`."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tests.chart.support.rendering import CHART

README: Final = CHART / "README.md"
BEGIN: Final = "<!-- values: written by `make chart-golden` -->\n"
END: Final = "<!-- end of values -->\n"
_COMMENT: Final = re.compile(r"\s#\s(.*)$")


def readme_with_table() -> str:
    """Return the README with the present table."""
    text = README.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    rows = "".join(f"| `{path}` | {default} | {meaning} |\n" for path, default, meaning in rows_of())
    return f"{before}{BEGIN}| value | default | meaning |\n|---|---|---|\n{rows}{END}{after}"


def rows_of() -> Iterator[tuple[str, str, str]]:
    """Return path, default and comment of each value, and of each group of values that has a comment."""
    text = (CHART / "values.yaml").read_text()
    node = yaml.compose(text)
    assert isinstance(node, yaml.MappingNode)
    yield from _rows(node, yaml.safe_load(text), text.splitlines(), "")


def _rows(node: yaml.MappingNode, values: Any, lines: list[str], prefix: str) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        meaning = _meaning(lines, key.start_mark.line, key.start_mark.column)
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            if meaning:
                yield path, "", meaning
            yield from _rows(value, values[key.value], lines, f"{path}.")
        else:
            yield path, f"`{json.dumps(values[key.value], ensure_ascii=False)}`", meaning


def _meaning(lines: list[str], line: int, column: int) -> str:
    """Return the comment at the end of a line, or else the one above it, if that is the only one of the key."""
    beside = _COMMENT.search(lines[line])
    above: list[str] = []
    for text in reversed(lines[:line]):
        if not text.startswith(" " * column + "# "):
            break
        above.insert(0, text.strip()[2:].strip())
    found = " ".join([*above, beside[1].strip()] if beside else above)
    return found.replace("|", "\\|").replace("<", "&lt;")


def write_table() -> None:
    """Write the README again."""
    README.write_text(readme_with_table())
