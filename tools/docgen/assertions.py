"""The reference of all assertions as Markdown, made from their structs.

`python -m tools.docgen.assertions docs/testing.md` replaces everything below
the marker line of that page; without an argument, prints the reference to
standard output.
"""

import sys
from pathlib import Path

from msgspec import inspect

from haptic_trio.config.assertions import TYPES
from haptic_trio.config.model import ValidationTest
from haptic_trio.config.suites import SuiteFile
from tools.docgen.configuration import describe_struct, replace_below, structs_in

MARKER = "<!-- Below this line the page is made from the structs: python -m tools.docgen.assertions FILE -->"


def assertion_reference() -> str:
    """Return the Markdown text: a test, a file of tests, and each type of assertion with the sections within it."""
    sections = [
        describe_struct(f"A test: `{path}`" if path else "A test", part)
        for path, part in structs_in("", _struct(ValidationTest))
    ]
    sections.append(describe_struct("A file", _struct(SuiteFile)))
    for cls in TYPES:
        struct = _struct(cls)
        for path, part in structs_in("", struct):
            name = f"`{struct.tag}`"
            sections.append(describe_struct(f"{name}: `{path}`" if path else name, part))
    return "\n\n".join(sections) + "\n"


def _struct(cls: type) -> inspect.StructType:
    struct = inspect.type_info(cls)
    assert isinstance(struct, inspect.StructType)
    return struct


if __name__ == "__main__":
    if len(sys.argv) > 1:
        replace_below(Path(sys.argv[1]), MARKER, assertion_reference())
    else:
        sys.stdout.write(assertion_reference())
