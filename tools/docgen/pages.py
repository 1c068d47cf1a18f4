"""The pages below docs/reference, made from the program: `python -m tools.docgen.pages DIRECTORY`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from haptic_trio.cli.inputs.files import replace_file
from tools.docgen.commands import commands_page
from tools.docgen.structs import console_page, messages_page
from tools.docgen.templates import templates_page

NOTE: Final = "<!-- Made from the program by `make docs`. Changes by hand are lost. -->\n\n"

PAGES: Final[dict[str, Callable[[], str]]] = {
    "cli.md": commands_page,
    "console-protocol.md": console_page,
    "filters.md": templates_page,
    "messages.md": messages_page,
}


def page(name: str) -> str:
    """Return the page *name* as it has to be."""
    return f"{NOTE}{PAGES[name]().strip()}\n"


def write_pages(directory: Path) -> None:
    """Write all pages to *directory*."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        replace_file(directory / name, page(name))


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
