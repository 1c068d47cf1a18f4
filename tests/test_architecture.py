"""The code base keeps the rules that no linter checks."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

import haptic_trio
from haptic_trio import messages
from haptic_trio.httpstore import events
from haptic_trio.k8s import reflector
from tools.docgen import modules

ROOT = Path(__file__).parents[1]
PACKAGE = Path(haptic_trio.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
FORBIDDEN_NAMES = {"utils", "common", "helpers", "manager", "misc"}
PRIVATE_WORDS = (
    "told",
    "tells?",
    "telling",
    "whoever",
    "nobody",
    "somebody",
    "anew",
    r"eclips\w*",
    r"wish\w*",
    "ours",
    "remarks?",
    "surveys?",
    "scenes?",
    "scenery",
    "placing",
    r"troubl(?!esh)\w*",
    r"mend\w*",
    "stand[-_]ins?",
    "unlisted",
    "once[ _]more",
    "put[ _]aside",
    r"is[ _]no(?![ _](?:longer|more|other)(?:[ _]|\b))",
    r"refus\w*",
)
"""Words for which the glossary of docs/architecture.md has a standard term; regular expressions."""
MEANT = re.compile(r"[Tt]here[ _]is[ _]no|[Cc]onnections?\b.*refus|refus\w+[ _]connection|hold refused")
"""Texts that may have such a word: "there is no", refused connections, and a word of HAProxy."""
WRITTEN = (
    "haptic_trio",
    "docs",
    "chart",
    "tools",
    "examples",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Makefile",
)


@cache
def parsed(file: Path) -> ast.Module:
    """Return the syntax tree of *file*."""
    return ast.parse(file.read_text())


def tracked_files() -> list[Path]:
    """Return the files that git tracks, or, outside a checkout, those of the package and the tests."""
    result = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = result.stdout.split("\0") if result.returncode == 0 else []
    files = [ROOT / name for name in names if name] or [*MODULES, *(ROOT / "tests").rglob("*.py")]
    return [file for file in files if file.is_file()]


@pytest.mark.process
def test_no_source_file_is_longer_than_400_lines() -> None:
    long = {
        file.relative_to(ROOT): length
        for file in tracked_files()
        if file.suffix == ".py" and (length := len(file.read_text().splitlines())) > 400
    }

    assert long == {}


def test_modules_have_names_of_the_field_and_a_docstring() -> None:
    assert {file.stem for file in MODULES} & FORBIDDEN_NAMES == set()
    assert [file for file in MODULES if not ast.get_docstring(parsed(file))] == []


def test_packages_hold_a_docstring_only() -> None:
    crowded = [
        file
        for file in MODULES
        if file.name == "__init__.py" and file.parent != PACKAGE and len(parsed(file).body) != 1
    ]

    assert crowded == []


def test_public_functions_and_classes_say_what_they_do() -> None:
    silent = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for file in MODULES
        for node in parsed(file).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]

    assert silent == []


def test_memory_channels_are_not_closed_by_an_awaiting_with() -> None:
    # It would replace an exception in flight when the scope is cancelled.
    offenders = [
        f"{file.name}:{number}"
        for file in MODULES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if re.search(r"async with .*(_in|_out|\bchanges|\btriggers|\bcycles|\bdeployments)\b\s*[,:]", line)
    ]

    assert offenders == []


# Each shields one thread call with a limit of its own, or gets its deadline when it is cancelled.
SHIELDS_WITHOUT_LIMIT = {
    "cancellation.py: cancelled_first",
    "cancellation.py: clean_up_in_thread",
    "cancellation.py: finish_despite_cancel",
    "workqueue/controller.py: _run_terms",
}


def _is_shield(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(word.arg == "shield" for word in node.keywords)


def test_shielded_scopes_have_a_limit_and_leave_threads_behind() -> None:
    unlimited, waiting = set(), set()
    for file in MODULES:
        if "shield" not in file.read_text():
            continue
        functions = [
            node for node in ast.walk(parsed(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        for function in functions:
            name = f"{file.relative_to(PACKAGE)}: {function.name}"
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _is_shield(node) and ast.unparse(node.func) == "trio.CancelScope":
                    unlimited.add(name)
                if isinstance(node, ast.With) and any(_is_shield(item.context_expr) for item in node.items):
                    calls = [call for line in node.body for call in ast.walk(line) if isinstance(call, ast.Call)]
                    threads = [call for call in calls if ast.unparse(call.func) == "trio.to_thread.run_sync"]
                    if any("abandon_on_cancel" not in {word.arg for word in call.keywords} for call in threads):
                        waiting.add(name)

    assert unlimited == SHIELDS_WITHOUT_LIMIT
    assert waiting == {"cancellation.py: clean_up_in_thread"}


def test_each_message_of_the_program_is_a_frozen_event_in_the_architecture_page() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    structs = {
        name: value
        for name, value in vars(messages).items()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and value.__module__ in {messages.__name__, events.__name__, reflector.__name__}
    }
    for part in ("Phases", "DeploymentState"):
        structs.pop(part)

    assert [name for name, value in structs.items() if not value.__struct_config__.frozen] == []
    assert [name for name in structs if f"`{name}`" not in page] == []


def test_the_module_index_of_the_architecture_page_is_current() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()

    assert page.partition(modules.MARKER + "\n")[2].strip() == modules.reference().strip(), "run: make docs"


def test_module_docstrings_name_the_module_instead_of_asking_a_question() -> None:
    question = re.compile(r'"""(What|Which|How|Whether|Where|Who|Whom|Whose|When) ')

    modules_of_tests = [file for name in ("tests", "tools") for file in sorted((ROOT / name).rglob("*.py"))]
    asking = [file for file in [*MODULES, *modules_of_tests] if question.match(file.read_text())]

    assert asking == []


@pytest.mark.process
def test_texts_use_the_terms_of_the_glossary() -> None:
    words = re.compile(rf"\b(?:{'|'.join(f'[{word[0]}{word[0].upper()}]{word[1:]}' for word in PRIVATE_WORDS)})\b")
    files = [
        file
        for file in tracked_files()
        if file.relative_to(ROOT).parts[0] in WRITTEN and file.suffix not in {".svg", ".png", ".txt", ".json"}
    ]

    found = [
        f"{file.relative_to(ROOT)}:{number}: {word}"
        for file in files
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        for word in words.findall(MEANT.sub("", line))
    ]

    assert found == [], "use the terms of the glossary in docs/architecture.md"


def test_names_of_tests_use_the_terms_of_the_glossary() -> None:
    words = re.compile(rf"(?:^|_)(?:{'|'.join(PRIVATE_WORDS)})(?:_|$)")

    definition = re.compile(r"^[ \t]*(?:async def|def|class) (\w+)", re.MULTILINE)

    found = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for name in definition.findall(file.read_text())
        if words.search(MEANT.sub("", name))
    ]

    assert found == [], "name the behaviour, with the terms of the glossary in docs/architecture.md"


def test_no_folder_shows_more_than_seventeen_modules() -> None:
    folders = Counter(file.parent for file in MODULES if file.name != "__init__.py")

    assert {folder: count for folder, count in folders.items() if count > 17} == {}


def test_files_that_the_pages_of_the_code_name_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text().partition("## 3. Where do I look")[2].partition("## 4.")[0]
    page += (ROOT / "docs" / "extending.md").read_text()
    paths = re.findall(r"`((?:[\w-]+/)+[\w.{},-]+\.(?:py|j2|yaml))`(?:: `([\w.]+)`)?", page)

    missing = [path for path, _ in paths if not (PACKAGE / path).exists() and not (ROOT / path).exists()]
    functions = [(path, name) for path, name in paths if name and path.endswith(".py") and (PACKAGE / path).exists()]
    unknown = [
        f"{path}: {name}"
        for path, name in functions
        if not all(re.search(rf"\b{part}\b", (PACKAGE / path).read_text()) for part in name.split("."))
    ]

    assert len(paths) > 60
    assert missing == []
    assert unknown == []


CLOCKS = {"autojump_clock", "mock_clock", "MockClock"}


def _has_virtual_clock(function: ast.FunctionDef | ast.AsyncFunctionDef, module: ast.Module) -> bool:
    """Whether a test runs on a virtual clock, by a fixture of its own or by one of its module's fixtures."""
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    names = {word.arg for word in (*function.args.args, *function.args.kwonlyargs)}
    found: set[str] = set()
    while fresh := names - found:
        found |= fresh
        names = {word.arg for name in fresh & functions.keys() for word in functions[name].args.args}
    return bool(found & CLOCKS)


def _real_sleeps(node: ast.AST) -> Iterator[int]:
    """Yield the line of each sleep that is not the pause of a loop that waits for a condition."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and ast.unparse(child.func) in {"trio.sleep", "trio.sleep_until", "time.sleep"}:
            yield child.lineno
        elif not isinstance(child, ast.While):
            yield from _real_sleeps(child)


def test_tests_sleep_on_the_real_clock_for_a_stated_reason_only() -> None:
    unexplained = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text()
        if "sleep" not in text:
            continue
        module, lines = ast.parse(text), text.splitlines()
        for part in module.body:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name.startswith("test_"):
                is_virtual = _has_virtual_clock(part, module)
            else:
                # A helper runs on the clock of the tests of its module.
                is_virtual = any(clock in text for clock in CLOCKS)
            if not is_virtual:
                unexplained += [
                    f"{file.relative_to(ROOT)}:{number}"
                    for number in _real_sleeps(part)
                    if not any("# real time: " in line for line in lines[number - 2 : number])
                ]

    assert unexplained == [], "wait for a fact, use autojump_clock, or give the reason: `# real time: …`"
