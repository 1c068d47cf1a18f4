from pathlib import Path

import msgspec
import pytest
import yaml

from haptic_trio.config import model
from haptic_trio.config.load import load_config
from tools.docgen.configuration import MARKER, reference, write_reference

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_page_is_current() -> None:
    _, _, below = PAGE.read_text("utf-8").partition(MARKER)

    assert below.strip() == reference().strip(), "run: python -m tools.docgen.configuration docs/configuration.md"


def test_example_of_the_page_is_a_valid_configuration() -> None:
    _, _, rest = PAGE.read_text("utf-8").partition("```yaml\n")
    example, _, _ = rest.partition("```")

    loaded = load_config(yaml.safe_load(example), None)

    assert "maintenance.map" in loaded.config.maps


def test_every_field_has_a_row_with_a_meaning() -> None:
    text = reference()
    structs = [kind for kind in vars(model).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]

    for field in (field for struct in structs for field in msgspec.structs.fields(struct)):
        rows = [row for row in text.splitlines() if row.startswith(f"| `{field.encode_name}` |")]
        assert rows, field.encode_name
        assert all(row.split(" | ")[3].strip("| ") for row in rows)


def test_defaults_are_written_as_in_yaml() -> None:
    assert "| `minDeploymentInterval` | duration | `2s` |" in reference()
    assert "| `port` | number, 1 to 65535 | `5555` |" in reference()
    assert "| `kind` | `local` or `agent` or `dataplaneapi` | `local` |" in reference()


def test_only_what_is_below_the_marker_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Head\n\n{MARKER}\n\nold\n")

    write_reference(page)

    assert page.read_text() == f"# Head\n\n{MARKER}\n\n{reference()}"


def test_page_without_marker_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Head\n")

    with pytest.raises(ValueError, match="no marker"):
        write_reference(page)
    assert page.read_text() == "# Head\n"
