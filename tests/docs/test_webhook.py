"""The files that the page shows for an API server are those with which the API server of the tests shows who it is."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.control_plane.certificates import Certificates
from tests.cluster.control_plane.processes import write_admission
from tests.docs.configurations import PART
from tests.docs.markdown import DOCS, blocks_of

PATHS = frozenset({"kubeConfigFile", "client-certificate", "client-key"})


def without_paths(value: Any) -> Any:
    """Return *value* with every path of a file replaced."""
    if isinstance(value, list):
        return [without_paths(each) for each in value]
    if isinstance(value, dict):
        return {key: "…" if key in PATHS else without_paths(each) for key, each in value.items()}
    return value


def test_files_for_the_api_server_are_those_that_the_cluster_tests_run_with(tmp_path: Path) -> None:
    shown = [yaml.safe_load(one.text) for one in blocks_of(DOCS / "webhook.md") if one.argument == PART]
    written = json.loads(write_admission(Certificates(tmp_path)).read_text())
    kubeconfig = json.loads((tmp_path / "webhooks.kubeconfig").read_text())

    assert [without_paths(each) for each in shown] == [without_paths(each) for each in (written, kubeconfig)]
