"""A process that got a signal ends, even if a thread waits for a volume that hangs."""

import signal
import subprocess
import sys
import threading
from functools import partial

import pytest
import trio

from haptic_trio.cli.serving.stopping import STOPPED, stop_limit

HANGING = """
import threading, trio
from haptic_trio.cli import {verb} as verb

async def hang(*_args, task_status=trio.TASK_STATUS_IGNORED, **_kwargs):
    print("runs", flush=True)
    await trio.to_thread.run_sync(threading.Event().wait)

class Options:
    grace, logs_to_terminal, steps = 0.0, False, None

verb.STOP_LIMIT = 0.05
verb.{run} = hang
trio.run(verb.{until_signalled}, Options())
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("verb", "run", "until_signalled"),
    [("serve", "run_serve", "serve_until_signalled"), ("agent", "run_agent", "run_agent_until_signalled")],
)
async def test_process_ends_after_a_signal_although_a_thread_hangs(verb: str, run: str, until_signalled: str) -> None:
    program = HANGING.format(verb=verb, run=run, until_signalled=until_signalled)
    output = bytearray()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(trio.run_process, [sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
            )
            assert process.stdout is not None
            while b"runs" not in output:
                output += await process.stdout.receive_some()
            process.send_signal(signal.SIGTERM)
            async for chunk in process.stdout:
                output += chunk

    assert process.returncode == STOPPED
    assert b"still not stopped" in output


def test_limit_of_a_process_that_ends_in_time_is_released() -> None:
    before = threading.active_count()
    with stop_limit() as limit:
        limit.begin(1000)
        assert threading.active_count() == before + 1
        timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]

    for timer in timers:
        timer.join(60)
    assert threading.active_count() == before
