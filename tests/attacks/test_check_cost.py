"""The CPU time of `haproxy -c` for objects with long lists, within bounds for what the limits of a namespace count."""

import os
import subprocess
from pathlib import Path
from typing import Final

import msgspec
import pytest

from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.dataplane.local.check import PRELUDE_NAME, CheckDirectory
from haptic_trio.dataplane.local.files.instance_directory import CONFIG_NAME
from haptic_trio.haproxy.model import Generation
from haptic_trio.pipeline.render import Rendered
from haptic_trio.pipeline.validate import Validator
from tests.attacks.inputs.growing import NAMESPACE, OBJECTS, POOL, POOLED, Growth

SIZE: Final = 100
SIZES: Final = {
    "authorities of clients": 300,
    "authorities of endpoints": 300,
    "endpoints of a slice": 1_000,
    "endpoints with TLS": 500,
    "endpoints of a policy": 500,
    "certificates of a listener": 500,
    "certificates of a ListenerSet": 200,
    "listeners with certificates": 60,
    "ports and annotations of a Gateway": 32,
    "ports with authorities of clients": 9,
    "headers of haproxy.org": 50,
    "headers of HAProxy Ingress": 50,
    "rewrites": 30,
}
"""Lengths that make a difference, or more than which is not served."""
WITHOUT_OUTPUT: Final = {"parents of a route", "sources of a grant"}
BOUNDS: Final = {"certificates": 0.003, "servers": 0.0001, "rounds": 2e-6, "lines": 0.0001, "bytes": 1e-7}
"""CPU seconds for each unit, on a slow machine: five to ten times what was measured, for certificates twenty times."""
ALLOWANCE: Final = 0.1
"""CPU seconds by which two measurements of the same may differ."""


class Measurement(msgspec.Struct, frozen=True):
    """What one configuration has, and takes."""

    units: dict[str, int]
    seconds: float
    rejected: tuple[str, ...]


async def measured(binary: Path, growth: Growth, name: str, size: int) -> Measurement:
    """Return the lowest CPU time of three checks with the objects *name* of *size*."""
    rendered = growth.render({**OBJECTS, **POOLED}[name](size))
    generation = await Validator(binary, check_timeout=60.0).parse(rendered)
    directory = CheckDirectory()
    try:
        seconds = min(check(binary, directory, generation) for _ in range(3))
    finally:
        directory.remove()
    return Measurement(
        units_of(rendered), seconds, tuple(f"{one.subject}: {one.problem.message}" for one in rendered.rejections)
    )


def check(binary: Path, directory: CheckDirectory, generation: Generation) -> float:
    """Return the CPU seconds of `haproxy -c` for *generation*, which must be valid."""
    path = directory.write(generation)
    command = [str(binary), "-c", "-f", str(path / PRELUDE_NAME), "-f", str(path / CONFIG_NAME)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=clean_environment(), text=True
    ) as process:
        assert process.stderr is not None
        messages = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, messages
    return usage.ru_utime + usage.ru_stime


def units_of(rendered: Rendered) -> dict[str, int]:
    """Return what counts against the limits of the tenant's namespace, and the lines of all files but certificates."""
    own = [output for key, output in rendered.produced.items() if key.namespace == NAMESPACE]
    texts = [
        rendered.text,
        *(file.content.decode() for file in rendered.files.values() if not file.path.endswith(".pem")),
    ]
    return {
        "certificates": sum(output.certificates for output in own),
        "servers": sum(output.servers for output in own),
        "rounds": sum(output.rounds for output in own),
        "lines": sum(text.count("\n") for text in texts),
        "bytes": sum(map(len, texts)),
    }


@pytest.mark.slow
@pytest.mark.haproxy
@pytest.mark.parametrize("name", [name for name in (*OBJECTS, *POOLED) if name not in WITHOUT_OUTPUT])
async def test_what_makes_the_check_slow_is_counted(haproxy_binary: Path, name: str) -> None:
    size = SIZES.get(name, SIZE)
    pooled = {"gatewayAddresses": list(POOL), "gatewayAddressesPerNamespace": len(POOL)}
    growth = Growth(**pooled) if name in POOLED else Growth()
    once = await measured(haproxy_binary, growth, name, size)
    twice = await measured(haproxy_binary, growth, name, 2 * size)

    assert twice.rejected == ()
    assert twice.units["bytes"] + twice.units["certificates"] > once.units["bytes"] + once.units["certificates"]
    more = {unit: twice.units[unit] - once.units[unit] for unit in BOUNDS}
    bound = ALLOWANCE + sum(max(0, number) * BOUNDS[unit] for unit, number in more.items())
    assert twice.seconds - once.seconds <= bound, (once, twice, more)
