"""Module index of docs/architecture.md, made from docstrings: `python -m tools.docgen.modules FILE`."""

import ast
import sys
from pathlib import Path
from typing import Final

import haptic_trio
from tools.docgen.configuration import replace_below

MARKER: Final = "<!-- Below this line the page is made from the code: python -m tools.docgen.modules FILE -->"
PACKAGE: Final = Path(haptic_trio.__file__).parent


def reference() -> str:
    """Return the index as Markdown: a list of modules with their summaries for each package."""
    parts = []
    for folder in [PACKAGE, *sorted(path.parent for path in PACKAGE.rglob("*/__init__.py"))]:
        modules = sorted(path for path in folder.glob("*.py") if not path.name.startswith("__"))
        if not modules:
            continue
        name = folder.relative_to(PACKAGE.parent).as_posix()
        rows = [f"- `{path.stem}`: {_summary(path)}" for path in modules]
        parts.append("\n".join((f"### {name}/", "", _summary(folder / "__init__.py"), "", *rows, "")))
    return "\n".join(parts)


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


if __name__ == "__main__":
    replace_below(Path(sys.argv[1]), MARKER, reference())
