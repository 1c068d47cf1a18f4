"""The process that `launcher` forks others from.

    python -m tests.support.processes.forking     reads orders from its input, a line each, and writes the pids

What it forks is `haptic-trio`, but for its steps being counted (see `steps`),
and changes at runtime being written out after a fraction of a second instead
of after ten. Until the functions that it counts are wrapped nothing may be
imported that keeps them, such as trio.
"""

import os
import select
import signal
import sys
import traceback
from pathlib import Path

import msgspec

from tests.support.processes.steps import Steps

WRITE_OUT_INTERVAL = 0.15


class Order(msgspec.Struct, frozen=True):
    """A process to start."""

    arguments: list[str]
    output: str
    steps: str


def _main() -> None:
    steps = Steps()
    import haptic_trio.cli.app  # noqa: F401, PLC0415 - once for all that are forked
    from haptic_trio.cli.main import main  # noqa: PLC0415 - after the functions are wrapped
    from haptic_trio.dataplane.local import instance as agent  # noqa: PLC0415

    agent.WRITE_OUT_INTERVAL = WRITE_OUT_INTERVAL
    # Their exit statuses are ignored, so they leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    pending = b""
    while True:
        select.select([0], [], [])
        read = os.read(0, 65536)
        if not read:
            return
        *lines, pending = (pending + read).split(b"\n")
        for line in lines:
            order = msgspec.json.decode(line, type=Order)
            pid = os.fork()
            if pid == 0:
                _become(order)
                steps.count_in(Path(order.steps))
                code = 1
                try:
                    main()
                    code = 0
                except SystemExit as exc:
                    code = exc.code if isinstance(exc.code, int) else 1
                except Exception:  # noqa: BLE001 - it must not go on as the launcher
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            os.write(1, b"%d\n" % pid)


def _become(order: Order) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(order.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(null)
    os.close(output)
    sys.argv = ["haptic-trio", *order.arguments]


if __name__ == "__main__":
    _main()
