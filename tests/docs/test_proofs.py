"""Tests that a page names as a proof are there, and so are metrics."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, all_pages, shown
from tools.docgen.metrics import reference as metrics_reference

_PROOF = re.compile(r"`(?P<file>tests/[\w/]+\.py)(?:::(?P<name>\w+))?`")


@pytest.mark.parametrize("page", all_pages(), ids=shown)
def test_named_tests_exist(page: Path) -> None:
    missing = []
    for match in _PROOF.finditer(page.read_text("utf-8")):
        file, name = ROOT / match["file"], match["name"]
        if not file.is_file() or (name and f"def {name}(" not in file.read_text("utf-8")):
            missing.append(match[0])
    assert missing == []


_METRIC = re.compile(r"`(?P<name>haptic_(?!trio)[a-z_]+)")


@pytest.mark.parametrize("page", all_pages(), ids=shown)
def test_named_metrics_exist(page: Path) -> None:
    known = set(re.findall(r"\| `(haptic_[a-z_]+)` \|", metrics_reference()))
    # A histogram has series beside its own name.
    known |= {f"{name}{suffix}" for name in known for suffix in ("_bucket", "_count", "_sum")}
    named = {match["name"].rstrip("_") for match in _METRIC.finditer(page.read_text("utf-8"))}
    assert {name for name in named if not any(one.startswith(name) for one in known)} == set()
