"""The Coraza engine and the OWASP core rules behind the firewall's hook, on HAProxy 2.8 and a newer one."""

import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane.binaries import BinaryUnavailableError, find_coraza_agent, provide_coraza_agent
from tests.support.components.rendering import render
from tests.support.processes.haproxy_versions import VersionUnavailableError, is_required, provide
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running

pytestmark = [pytest.mark.cluster, pytest.mark.haproxy]

HERE = "127.0.0.1"
PASSED = 404
"""Nothing is routed here: what has passed gets that."""

RULES = """\
SecRuleEngine On
SecRequestBodyAccess On
SecRule ARGS "@rx <script" "id:100,phase:2,deny,status:403"
SecRule REQUEST_HEADERS:User-Agent "@contains nikto" "id:101,phase:1,deny,status:429"
SecRule REQUEST_URI "@beginsWith /old" "id:102,phase:1,redirect:https://b.example.com/new"
SecRule REMOTE_ADDR "@ipMatch 203.0.113.0/24" "id:103,phase:1,deny,status:401"
"""
CORE_RULES = """\
Include @coraza.conf-recommended
SecRuleEngine On
Include @crs-setup.conf.example
Include @owasp_crs/*.conf
"""


@pytest.fixture(scope="session")
def agent_program() -> Path:
    required = os.environ.get("HAPTIC_REQUIRE_CLUSTER") == "1"
    try:
        return provide_coraza_agent() if required else find_coraza_agent()
    except BinaryUnavailableError as exc:
        if required:
            pytest.fail(str(exc))
        pytest.skip(str(exc))


@pytest.fixture(params=["2.8", "3.4"], autouse=True)
def haproxy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        monkeypatch.setenv("PATH", str(provide(request.param)), prepend=os.pathsep)
    except VersionUnavailableError as exc:
        if is_required():
            raise
        pytest.skip(str(exc))


@contextmanager
def judging(program: Path, directory: Path, rules: str, port: int = 0) -> Iterator[int]:
    """Run the agent with *rules* and yield its port."""
    (directory / "rules.conf").write_text(rules)
    command = [str(program), "-rules", str(directory / "rules.conf"), "-listen", f"{HERE}:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # It says where it listens as soon as it does, or ends.
        limit = threading.Timer(60, process.kill)
        limit.start()
        try:
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            limit.cancel()
            process.kill()


@contextmanager
def guarded(directory: Path, agent_port: int, **settings: Any) -> Iterator[int]:
    """Run HAProxy in front of nothing, with its requests judged by the agent; yield its port."""
    port = free_port()
    firewall: dict[str, Any] = {"wafAddress": HERE, "wafPort": agent_port, "wafTimeout": "20s", **settings}
    rendered = render([], bindAddress=HERE, httpPort=port, httpsPort=free_port(), **firewall)
    with running(directory, rendered.text, rendered.files, port=port):
        yield port


def ask(port: int, target: str, *, headers: dict[str, str] | None = None, body: str | None = None) -> int:
    connection = HTTPConnection(HERE, port, timeout=30)
    try:
        connection.request("GET" if body is None else "POST", target, body, {"Accept": "*/*", **(headers or {})})
        return connection.getresponse().status
    finally:
        connection.close()


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_rules_see_query_headers_body_and_client(agent_program: Path, tmp_path: Path) -> None:
    with (
        judging(agent_program, tmp_path, RULES) as agent,
        guarded(tmp_path, agent, wafBody=True, trustedProxies=[HERE]) as port,
    ):
        assert ask(port, "/?q=fine") == PASSED
        assert ask(port, "/?q=%3Cscript%3E") == 403
        assert ask(port, "/", headers={"User-Agent": "nikto"}) == 429
        assert ask(port, "/old/page") == 302
        assert ask(port, "/", headers={"X-Forwarded-For": "203.0.113.9"}) == 401
        assert ask(port, "/", headers=FORM, body="a=b&c=d") == PASSED
        assert ask(port, "/", headers=FORM, body="a=b&c=%3Cscript%3E") == 403


def test_core_rules_reject_attacks_and_nothing_else(agent_program: Path, tmp_path: Path) -> None:
    with judging(agent_program, tmp_path, CORE_RULES) as agent, guarded(tmp_path, agent, wafBody=True) as port:
        browser = {"Host": "a.example.com", "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"}
        assert ask(port, "/articles?page=2&sort=date", headers=browser) == PASSED
        assert ask(port, "/login", headers={**browser, **FORM}, body="name=ann&password=correct+horse") == PASSED
        assert ask(port, "/?id=1%27%20OR%20%271%27=%271%27%20UNION%20SELECT%20null--", headers=browser) == 403
        assert ask(port, "/login", headers={**browser, **FORM}, body="name=%3Cscript%3Ealert(1)%3C/script%3E") == 403


def test_many_requests_at_once_are_judged_one_by_one(agent_program: Path, tmp_path: Path) -> None:
    with judging(agent_program, tmp_path, RULES) as agent, guarded(tmp_path, agent) as port:
        targets = [f"/?q={'%3Cscript%3E' if number % 2 else number}" for number in range(200)]
        with ThreadPoolExecutor(50) as clients:
            found = list(clients.map(lambda target: ask(port, target), targets))

    assert found == [403 if number % 2 else PASSED for number in range(200)]


def test_an_agent_that_restarts_continues_to_check(agent_program: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        with judging(agent_program, tmp_path, RULES) as agent:
            port = stack.enter_context(guarded(tmp_path, agent))
            before = [ask(port, "/?q=fine"), ask(port, "/?q=%3Cscript%3E")]
        with judging(agent_program, tmp_path, RULES, agent):
            after = [ask(port, "/?q=fine"), ask(port, "/?q=%3Cscript%3E")]

    assert before == after == [PASSED, 403]


def test_an_agent_without_rules_for_the_application_lets_nothing_pass(agent_program: Path, tmp_path: Path) -> None:
    with (
        judging(agent_program, tmp_path, RULES) as agent,
        guarded(tmp_path, agent, wafApplication="unknown") as port,
    ):
        assert ask(port, "/?q=fine") == 503
