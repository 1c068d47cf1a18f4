from pathlib import Path

import yaml

from haptic_trio.config.assertions import TYPES
from haptic_trio.config.load import load_config
from tools.docgen.assertions import MARKER, assertion_reference

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def test_page_is_current() -> None:
    _, _, below = PAGE.read_text("utf-8").partition(MARKER)

    command = "python -m tools.docgen.assertions docs/testing.md"
    assert below.strip() == assertion_reference().strip(), f"run: {command}"


def test_every_type_has_a_section_and_every_field_a_meaning() -> None:
    text = assertion_reference()

    for cls in TYPES:
        assert f"\n## `{cls.__struct_config__.tag}`\n" in text
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    assert all(row.split(" | ")[3].strip("| ") for row in rows)


def test_example_of_the_page_is_a_valid_configuration() -> None:
    _, _, rest = PAGE.read_text("utf-8").partition("```yaml\n")
    example, _, _ = rest.partition("```")

    loaded = load_config({"metadata": {"name": "x"}, "data": {"config": example}}, None)

    assert "web" in yaml.safe_load(example)["validationTests"]
    assert loaded.config.validation_tests["web"].assertions
