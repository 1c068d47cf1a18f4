import gc
import signal
import sys
from pathlib import Path

import pytest
import trio

from haptic_trio.cli.serve import tune_interpreter
from haptic_trio.cli.serving.console import TOKEN_NAME
from haptic_trio.messages import ConfigInvalid
from tests.features.conftest import haproxy_binary, instance_root, site
from tests.features.console.test_demo import LIMIT, RUN, open_terminal
from tests.features.harness import Site, controller

__all__ = ["haproxy_binary", "instance_root", "site"]


def test_event_loop_waits_for_busy_threads_for_a_fifth_of_a_millisecond_each(monkeypatch: pytest.MonkeyPatch) -> None:
    intervals: list[float] = []
    monkeypatch.setattr(sys, "setswitchinterval", intervals.append)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)

    tune_interpreter()

    assert intervals == [0.0002]


@pytest.mark.haproxy
async def test_kind_of_instance_that_a_directory_cannot_have_is_rejected(site: Site, haproxy_binary: Path) -> None:
    site.write_config(dataplane={"kind": "agent"})

    async with controller(site, haproxy_binary) as running:
        invalid = await running.wait(ConfigInvalid)

    assert invalid.problems[0].path == "dataplane.kind"
    assert invalid.problems[0].hint == "use `local`"


@pytest.mark.haproxy
async def test_terminal_shows_where_haproxy_serves_and_the_console_with_its_token(
    site: Site, haproxy_binary: Path
) -> None:
    options = ["--manifests", site.manifests, "--state-dir", site.state, "--haproxy", haproxy_binary]
    with open_terminal() as (terminal, end):
        serving = await trio.lowlevel.open_process(
            [*RUN, "serve", *map(str, options), "--listen", "127.0.0.1:0", "--on-exit", "stop"],
            stdin=end,
            stdout=end,
            stderr=end,
        )
        await terminal.wait_for(
            f"Serving http://127.0.0.1:{site.port}", ": 0 routes, 1 instance. `haptic-trio", " Console: http://"
        )
        token = (site.state / TOKEN_NAME).read_text().strip()
        await terminal.wait_for(f"/console#token={token}")
        # This terminal is in charge of no program, so the signal of Ctrl-C is sent by hand.
        serving.send_signal(signal.SIGINT)
        with trio.fail_after(LIMIT):
            assert await serving.wait() == 0
