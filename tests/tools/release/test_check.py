"""A release that contradicts itself is not built."""

from pathlib import Path

import pytest

from tools.release import check


@pytest.fixture
def contradiction(monkeypatch: pytest.MonkeyPatch) -> str:
    fault = "chart/Chart.yaml: version is 0.0.9"
    monkeypatch.setattr(check, "disagreements", lambda: [fault])
    monkeypatch.setattr(check, "unfinished", lambda: iter(["project.urls.Homepage is a placeholder"]))
    return fault


def test_a_contradiction_stops_it_before_anything_is_written(
    contradiction: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main([str(tmp_path / "dist")]) == 1

    assert capsys.readouterr().err == f"{contradiction}\n"
    assert not (tmp_path / "dist").exists()


@pytest.mark.usefixtures("contradiction")
def test_what_only_a_release_must_have_counts_with_final_alone(tmp_path: Path) -> None:
    assert len(check.check(tmp_path / "dist", final=False)) == 1
    assert check.check(tmp_path / "dist", final=True)[1:] == ["project.urls.Homepage is a placeholder"]
