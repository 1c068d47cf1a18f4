"""Commands that look at a cluster once fetch what its templates fetch, once."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.cli.commands import invoke_cli, replace_in

pytestmark = pytest.mark.process

TEMPLATE = """\
{% for line in http.fetch(url, critical=critical).splitlines() %}
{{ line | map_key }} denied
{% endfor %}
"""
MAIN = """\
global
    maxconn 100

defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s

frontend web
    bind 127.0.0.1:18888
    http-request deny if { src,map_ip(maps/deny.map) -m found }
"""


class Pages:
    """What the server answers, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/deny.txt"
        self.texts: list[str] = ["192.0.2.1\n"]
        self.asked = 0


@pytest.fixture
def pages() -> Iterator[Pages]:
    """A server in a thread of its own; its texts are given one after another, the last one again and again."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = given.texts.pop(0) if len(given.texts) > 1 else given.texts[0]
            given.asked += 1
            self.send_response(200 if text else 503)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        given = Pages(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield given
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def cluster(tmp_path: Path, pages: Pages) -> Path:
    """A directory with a configuration that fetches a list."""
    config = {
        "http": {"allowedNetworks": ["127.0.0.1/32"]},
        "templating": {"libraries": [], "extraContext": {"url": pages.url, "critical": False}},
        "maps": {"deny.map": {"template": TEMPLATE}},
        "haproxyConfig": {"template": MAIN},
    }
    directory = tmp_path / "cluster"
    directory.mkdir()
    metadata = {"name": "haptic-trio", "namespace": "default"}
    data = {"config": yaml.safe_dump(config)}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    (directory / "config.yaml").write_text(yaml.safe_dump(config_map))
    return directory


def test_render_fetches_once(cluster: Path, pages: Pages) -> None:
    result = invoke_cli("render", "--manifests", cluster, "--with-files")

    assert (result.exit_code, result.stderr) == (0, "")
    assert "192.0.2.1 denied\n" in result.stdout
    assert pages.asked == 1


def test_what_cannot_be_fetched_is_a_warning_unless_it_is_critical(cluster: Path, pages: Pages) -> None:
    pages.texts = [""]
    result = invoke_cli("render", "--manifests", cluster)
    assert result.exit_code == 0
    assert "the server answered 503; there is no content" in result.stderr
    replace_in(cluster / "config.yaml", "critical: false", "critical: true")

    result = invoke_cli("render", "--manifests", cluster)

    assert result.exit_code == 1
    assert f"{pages.url} is not to be had: the server answered 503" in result.stderr.replace("\n", " ")


@pytest.mark.haproxy
def test_validate_reports_an_invalid_content(cluster: Path, pages: Pages, haproxy_binary: Path) -> None:
    assert haproxy_binary.exists()
    pages.texts = ["two words\n"]
    result = invoke_cli("validate", "--manifests", cluster, "--output", "json")

    document = json.loads(result.stdout)
    (problem,) = document["problems"]
    assert (result.exit_code, document["valid"]) == (1, False)
    assert f"the content of {pages.url} was rejected: map_key" in problem["message"]


@pytest.mark.haproxy
def test_diff_fetches_once_for_both_sides(cluster: Path, pages: Pages, haproxy_binary: Path) -> None:
    assert haproxy_binary.exists()
    after = Path(shutil.copytree(cluster, cluster.parent / "after"))
    pages.texts = ["192.0.2.1\n", "192.0.2.2\n"]

    result = invoke_cli("diff", "--manifests", cluster, "--to", after)

    assert (result.exit_code, result.stdout) == (0, "no changes\n")
    assert pages.asked == 1


@pytest.mark.haproxy
def test_explain_names_the_fetch_behind_a_file(cluster: Path, haproxy_binary: Path, pages: Pages) -> None:
    assert haproxy_binary.exists()
    result = invoke_cli("explain", "--manifests", cluster, "maps/deny.map:1", "--output", "json")

    assert f"http.fetch('{pages.url}')" in result.stdout
