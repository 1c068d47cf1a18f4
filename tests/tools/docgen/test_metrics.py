"""The page of metrics is what the program exports."""

from pathlib import Path

from tools.docgen.metrics import MARKER, all_families, reference, write_reference

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
OF_TARGETS = {"instance", "job", "namespace", "pod", "container", "service", "endpoint", "node"}


def test_page_is_current() -> None:
    _, _, below = PAGE.read_text("utf-8").partition(MARKER)

    assert below.strip() == reference().strip(), "run: python -m tools.docgen.metrics docs/metrics.md"


def test_only_what_is_below_the_marker_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Head\n\n{MARKER}\n\nold\n")

    write_reference(page)

    assert page.read_text() == f"# Head\n\n{MARKER}\n\n{reference()}"


def test_names_follow_the_conventions() -> None:
    for family in all_families():
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        assert family.kind != "histogram" or family.name.endswith("_seconds"), family.name
        assert family.text.endswith("."), family.name
        # Prometheus would rename the exporter's label to exported_….
        assert not OF_TARGETS & set(family.labels), family.name
    assert len({family.name for family in all_families()}) == len(all_families())
