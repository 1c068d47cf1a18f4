"""Lower bound of the benchmark: HAProxy's own check of the configuration, and a reload."""

import itertools
import subprocess
import time
from functools import partial

import trio

from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.dataplane.local.process import PROC
from tools.bench.rig.controller import Controller

RELOAD_LIMIT = 60.0


def time_check(controller: Controller) -> float:
    """Return how many seconds `haproxy -c` takes for what HAProxy runs."""
    record = next(controller.haproxies())
    words = (PROC / str(record.pid) / "cmdline").read_bytes().decode().split("\0")
    configs = [word for flag, config in itertools.pairwise(words) if flag == "-f" for word in (flag, config)]
    since = time.monotonic()
    subprocess.run([record.binary, "-c", *configs], env=clean_environment(), capture_output=True, check=True)
    return time.monotonic() - since


def time_reload(controller: Controller) -> float:
    """Return how many seconds a reload takes: from the order to the answer that the new worker runs."""
    (master,) = controller.masters()
    since = time.monotonic()
    trio.run(partial(master.reload, limit=RELOAD_LIMIT))
    return time.monotonic() - since
