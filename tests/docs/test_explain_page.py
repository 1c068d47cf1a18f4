"""The answers that the page on `explain` shows are those of the program, over the manifests of the demo."""

import re
import shlex
from pathlib import Path

import pytest

from haptic_trio.demo.site import USUAL_PORTS, write_site
from tests.cli.commands import invoke_cli
from tests.docs.console import compare, steps_of
from tests.docs.markdown import DOCS, Block, blocks_of

pytestmark = pytest.mark.process

BLOCKS = [block for block in blocks_of(DOCS / "explain.md") if block.language == "console"]
SERVER = "    server s1 127.0.0.1:18081"
BROKEN = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: broken, namespace: default}
spec:
  ingressClassName: haptic
  rules:
    - host: broken.localhost
      http: {paths: [{path: /a b, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
"""


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(tmp_path_factory.mktemp("demo"), USUAL_PORTS).manifests


@pytest.fixture(scope="module")
def moved(manifests: Path) -> int:
    """How many lines further down haproxy.cfg has today what the page shows at line 85."""
    lines = invoke_cli("render", "--manifests", manifests).stdout.splitlines()
    return lines.index(SERVER) + 1 - 85


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_the_answer_is_as_shown(block: Block, manifests: Path, moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAPTIC_MANIFESTS", str(manifests))
    broken = manifests / "broken.yaml"
    broken.write_text(BROKEN) if "broken" in block.text else broken.unlink(missing_ok=True)
    text = re.sub(r"haproxy\.cfg:(\d+)", lambda found: f"haproxy.cfg:{int(found[1]) + moved}", block.text)

    for command, expected in steps_of(text):
        compare(invoke_cli(*shlex.split(command)[1:]).output, expected)
