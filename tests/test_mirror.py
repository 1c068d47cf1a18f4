"""Every module with code has a test module of its own, or one that imports it, or stands on the list of exceptions."""

import ast
import re
from pathlib import Path

import haptic_trio

ROOT = Path(__file__).parents[1]
PACKAGE = Path(haptic_trio.__file__).parent
EXCEPTIONS = ROOT / "tests" / "modules_without_own_test.txt"


def modules_without_test() -> set[str]:
    """Return the modules of the package that have functions and that no test module mirrors or imports."""
    texts = [file.read_text() for file in (ROOT / "tests").rglob("*.py")]
    imported = set[str]()
    for text in texts:
        imported.update(re.findall(r"(?:from|import) (haptic_trio(?:\.\w+)+)", text))
        for package, names in re.findall(r"from (haptic_trio(?:\.\w+)*) import \(?([\w, \n]+)", text):
            imported.update(f"{package}.{name.strip()}" for name in names.split(","))
    missing = set[str]()
    for file in PACKAGE.rglob("*.py"):
        relative = file.relative_to(PACKAGE)
        dotted = "haptic_trio." + ".".join(relative.with_suffix("").parts)
        has_code = any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(ast.parse(file.read_text()))
        )
        mirror = ROOT / "tests" / relative.parent / f"test_{relative.name}"
        if has_code and not mirror.exists() and dotted not in imported:
            missing.add(str(relative))
    return missing


def test_modules_have_a_test_module_or_are_listed_as_exceptions() -> None:
    listed = {line for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#")}

    missing = modules_without_test()

    assert missing - listed == set(), "add a test module"
    assert listed - missing == set(), "remove these lines: the modules have tests, or are gone"
