"""Probes: when one counts as passed or failed, and the asking."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import httpx
import trio

Exec = Callable[[Sequence[str]], Awaitable[int]]
"""Runs a command in the container; returns its status."""


class ProbeCount:
    """Turns answers into verdicts: as many alike in a row as the probe's thresholds ask for."""

    def __init__(self, *, successes: int, failures: int) -> None:
        self._needed = {True: successes, False: failures}
        self._last: bool | None = None
        self._row = 0

    def record(self, answer: bool) -> bool | None:
        """Return the verdict that *answer* completes, or None."""
        self._row = self._row + 1 if answer == self._last else 1
        self._last = answer
        return answer if self._row >= self._needed[answer] else None


async def run_probe(
    probe: Mapping[str, Any], verdict: Callable[[bool], None], ask: Callable[[], Awaitable[bool]]
) -> None:
    """Ask for ever, as often as *probe* says; an answer that takes too long is a bad one."""
    count = ProbeCount(successes=probe.get("successThreshold", 1), failures=probe.get("failureThreshold", 3))
    await trio.sleep(probe.get("initialDelaySeconds", 0))
    while True:
        answer = False
        with trio.move_on_after(probe.get("timeoutSeconds", 1)):
            answer = await ask()
        if (decided := count.record(answer)) is not None:
            verdict(decided)
        await trio.sleep(probe.get("periodSeconds", 10))


async def ask_once(
    probe: Mapping[str, Any], *, address: str, ports: Mapping[str, int], client: httpx.AsyncClient, execute: Exec
) -> bool:
    """Return whether the container answers *probe* well; *ports* are those with names."""
    try:
        if request := probe.get("httpGet"):
            host, port = request.get("host") or address, _port_of(request, ports)
            url = f"{request.get('scheme', 'HTTP').lower()}://{host}:{port}{request.get('path') or '/'}"
            headers = {one["name"]: one["value"] for one in request.get("httpHeaders") or ()}
            answer = await client.get(url, headers={"connection": "close", "user-agent": "kube-probe/1.36", **headers})
            return 200 <= answer.status_code < 400
        if request := probe.get("tcpSocket"):
            stream = await trio.open_tcp_stream(request.get("host") or address, _port_of(request, ports))
            await stream.aclose()
            return True
        if request := probe.get("exec"):
            return await execute(request["command"]) == 0
    except (httpx.HTTPError, OSError):
        return False
    return False


def ports_by_name(container: Mapping[str, Any]) -> dict[str, int]:
    """Return the ports of *container* that have a name."""
    return {port["name"]: port["containerPort"] for port in container.get("ports") or () if "name" in port}


def _port_of(request: Mapping[str, Any], ports: Mapping[str, int]) -> int:
    port = request["port"]
    return port if isinstance(port, int) else ports.get(port, 0)
