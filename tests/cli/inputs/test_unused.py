"""Reports about snippets that no template includes."""

from pathlib import Path

import pytest
import trio

from haptic_trio.cli.inputs.options import make_input
from haptic_trio.cli.inputs.unused import reporting_unused
from haptic_trio.config.load import load_config
from haptic_trio.errors import Problem
from haptic_trio.k8s.manifests.objects import read_manifests
from tests.cli.commands import replace_in
from tests.cli.site_commands import make_site


async def test_unused_snippet_is_reported_when_it_appears_and_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = make_site(Path()) / "config.yaml"
    reports: list[tuple[str, tuple[Problem, ...]]] = []
    options = make_input(Path("site"), "default", "haptic-trio", "haptic-trio", None)
    load = reporting_unused(load_config, options, lambda *report: reports.append(report))

    async def load_file() -> None:
        [located], _ = read_manifests(await trio.Path(file).read_text(), str(file))
        await trio.to_thread.run_sync(load, located.resource, None)

    await load_file()
    replace_in(file, "frontend-rules-served-by", "frontend-rule-served-by")
    await load_file()
    await load_file()
    replace_in(file, "frontend-rule-served-by", "frontend-rules-served-by")
    await load_file()

    [(source, [problem]), (_, gone)] = reports
    assert source == "ConfigMap default/haptic-trio"
    assert str(problem).startswith("site/config.yaml:20:7: templateSnippets.frontend-rule-served-by: no template")
    assert gone == ()
