from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tools.bench.figures.chart import draw_chart
from tools.bench.page import DOCS, Published, charts_of, main, pages_of, put


def published() -> Published:
    return msgspec.json.decode((DOCS / "performance.json").read_bytes(), type=Published)


def test_the_pages_show_the_figures_of_the_file() -> None:
    for name, text in pages_of(published(), DOCS).items():
        assert (DOCS / name).read_text("utf-8") == text, "run: python -m tools.bench.page"


def test_the_curves_show_the_figures_of_the_file() -> None:
    charts = charts_of(published())

    assert charts.keys() == {"changes", "configmap", "start", "memory", "requests"}
    for name, chart in charts.items():
        drawn = (DOCS / "images" / f"performance-{name}.svg").read_text("utf-8")
        assert drawn == draw_chart(chart), "run: python -m tools.bench.page"


def test_new_figures_replace_those_of_their_kind_only(tmp_path: Path) -> None:
    for name in ("performance.md", "benchmarks.md", "performance.json"):
        (tmp_path / name).write_bytes((DOCS / name).read_bytes())
    before = published()
    first = before.figures[0]
    changed = msgspec.structs.replace(first, settings=msgspec.structs.replace(first.settings, haproxy="9.9.9", load=9))
    (tmp_path / "new.json").write_bytes(msgspec.json.encode(changed))

    ended = CliRunner().invoke(main, ["--docs", str(tmp_path), "--figures", str(tmp_path / "new.json")])

    assert ended.exit_code == 0, ended.output
    after = msgspec.json.decode((tmp_path / "performance.json").read_bytes(), type=Published)
    assert [one.settings.haproxy for one in after.figures] == ["9.9.9"]
    assert after.requests == before.requests
    assert "busy with other work** (load 9.0" in (tmp_path / "performance.md").read_text("utf-8")
    assert "### HAProxy 9.9.9" in (tmp_path / "benchmarks.md").read_text("utf-8")
    assert (tmp_path / "images" / "performance-start.svg").exists()


def test_a_page_without_a_place_for_the_figures_is_an_error() -> None:
    with pytest.raises(ValueError, match="<!-- goals -->"):
        put("text", "goals", "table")
