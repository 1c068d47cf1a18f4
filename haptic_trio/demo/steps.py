"""Steps of the demo: each changes a file and waits for the effect."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio

from haptic_trio.cli.inputs.files import replace_file
from haptic_trio.demo.client import DemoClient
from haptic_trio.demo.running import RunningDemo
from haptic_trio.errors import HapticError
from haptic_trio.messages import (
    ConfigInvalid,
    DeploymentCompleted,
    IterationEnded,
    ProblemsReported,
    Quarantined,
    StageReached,
)

Step = Callable[[], Awaitable[tuple[float, str]]]

INGRESS = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {name}
  namespace: default
spec:
  ingressClassName: haptic
  rules:
    - host: {name}.localhost
      http:
        paths:
          - path: {path}
            pathType: Prefix
            backend:
              service:
                name: web
                port:
                  name: http
"""
INJECTION = '"/\\n    http-request deny\\n#"'
"""YAML scalar of a path that would be a rule if it became syntax."""
HALF_WRITTEN = "apiVersion: v1\nkind: Service\nmetadata:\n  name: half\n  labels: {a: b\nspec:\n"


class StepFailedError(HapticError):
    """An expected effect did not happen."""


class Walkthrough:
    """Steps of the demo; each returns its measured time in seconds and a description of the result."""

    def __init__(self, running: RunningDemo, client: DemoClient) -> None:
        self._running = running
        self._client = client
        self._manifests = running.site.manifests

    @property
    def steps(self) -> Sequence[tuple[str, Step]]:
        """Steps after the start, by title."""
        return (
            ("HTTPS, certificate chosen by name", self.ask_over_tls),
            ("endpoint moves", self.move_endpoint),
            ("new Ingress", self.add_ingress),
            ("broken Ingress", self.break_ingress),
            ("broken Ingress repaired", self.repair_ingress),
            ("broken YAML", self.break_file),
            ("ConfigMap changes", self.change_config),
            ("invalid ConfigMap", self.break_config),
        )

    async def start(self, began: float) -> tuple[float, str]:
        """Wait for the first answer since *began*."""
        answered = await self._client.wait_for(lambda answer: answer.status == 200)
        return answered - began, "web-one answers through HAProxy"

    async def ask_over_tls(self) -> tuple[float, str]:
        """Send one request over HTTPS, trusting only the certificate authority of the demo."""
        began = trio.current_time()
        answer = await self._client.get(tls=True)
        _require(answer.status == 200, f"status {answer.status}")
        return trio.current_time() - began, "verified against the demo's own authority"

    async def move_endpoint(self) -> tuple[float, str]:
        """Move an endpoint to another port: traffic follows, without a reload."""
        ports = self._running.site.ports
        since, reloads = len(self._running.events), await self._running.count_reloads()
        began = self._edit("web.yaml", f"    port: {ports.web_one}", f"    port: {ports.web_two}")
        answered = await self._client.wait_for(lambda answer: answer.backend == "web-two")
        await self._wait_deployed(since)
        after = await self._running.count_reloads()
        _require(after == reloads, f"HAProxy was reloaded {after - reloads} times")
        return answered - began, "web-two answers, no reload"

    async def add_ingress(self) -> tuple[float, str]:
        """Add an Ingress for a new host, with a Service that is in use: it is served, without a reload."""
        since, reloads = len(self._running.events), await self._running.count_reloads()
        began = self._write("shop.yaml", INGRESS.format(name="shop", path="/"))
        answered = await self._client.wait_for(lambda answer: answer.status == 200, host="shop.localhost")
        await self._wait_deployed(since)
        after = await self._running.count_reloads()
        _require(after == reloads, f"HAProxy was reloaded {after - reloads} times")
        return answered - began, "shop.localhost answers, no reload"

    async def break_ingress(self) -> tuple[float, str]:
        """Add an Ingress whose path is an injection attempt: it is reported, and all others are served."""
        since = len(self._running.events)
        began = self._write("broken.yaml", INGRESS.format(name="broken", path=INJECTION))
        event = await self._running.events.wait_for(Quarantined, lambda event: event.ref.name == "broken", since=since)
        reported = trio.current_time()
        for host in ("demo.localhost", "shop.localhost"):
            answer = await self._client.get(host=host)
            _require(answer.status == 200, f"{host} answers {answer.status}")
        answer = await self._client.get(host="broken.localhost")
        _require(answer.backend == "", "the broken Ingress is served")
        return reported - began, f"reported as {event.ref}, others are served"

    async def repair_ingress(self) -> tuple[float, str]:
        """Repair the broken Ingress: it is served."""
        since = len(self._running.events)
        began = self._write("broken.yaml", INGRESS.format(name="broken", path="/"))
        answered = await self._client.wait_for(lambda answer: answer.status == 200, host="broken.localhost")
        await self._wait_deployed(since)
        return answered - began, "broken.localhost answers"

    async def break_file(self) -> tuple[float, str]:
        """Add a file that is not YAML: it is reported with its line, and nothing else changes."""
        since = len(self._running.events)
        began = self._write("half.yaml", HALF_WRITTEN)
        event = await self._running.events.wait_for(
            ProblemsReported, lambda event: bool(event.problems) and Path(event.source).name == "half.yaml", since=since
        )
        reported = trio.current_time()
        line = event.problems[0].line
        _require(line > 0, "the report names no line")
        answer = await self._client.get()
        _require(answer.status == 200, f"demo.localhost answers {answer.status}")
        (self._manifests / "half.yaml").unlink()
        return reported - began, f"reported as half.yaml:{line}"

    async def change_config(self) -> tuple[float, str]:
        """Change the ConfigMap: a new iteration starts, and its templates reach HAProxy."""
        since = len(self._running.events)
        before = self._running.iteration
        began = self._edit("config.yaml", "greeting: hello", "greeting: howdy")
        answered = await self._client.wait_for(lambda answer: answer.greeting == "howdy")
        await self._wait_deployed(since)
        await self._running.events.wait_for(IterationEnded, lambda event: event.iteration == before, since=since)
        ready = await self._running.events.wait_for(StageReached, lambda event: event.stage == 5, since=since)
        _require(ready.iteration > before, "no new iteration was started")
        return answered - began, f"iteration {before} ended, iteration {ready.iteration} has deployed"

    async def break_config(self) -> tuple[float, str]:
        """Misspell a field of the ConfigMap: it is reported with its line, and the iteration continues."""
        since = len(self._running.events)
        before = self._running.iteration
        began = self._edit("config.yaml", "debounceInterval:", "debounceIntervall:")
        event = await self._running.events.wait_for(ConfigInvalid, lambda event: bool(event.problems), since=since)
        reported = trio.current_time()
        problem = event.problems[0]
        _require(problem.line > 0, "the report names no line")
        _require(self._running.iteration == before, "the iteration ended")
        answer = await self._client.get()
        _require(answer.greeting == "howdy", "the previous configuration is no longer in use")
        return reported - began, f"reported as line {problem.line}, {problem.path}; the iteration continues"

    async def _wait_deployed(self, since: int) -> None:
        # With several instances, one may answer before another has the change.
        await self._running.events.wait_for(DeploymentCompleted, lambda _event: True, since=since)

    def _write(self, name: str, text: str) -> float:
        replace_file(self._manifests / name, text)
        return trio.current_time()

    def _edit(self, name: str, old: str, new: str) -> float:
        text = (self._manifests / name).read_text("utf-8")
        _require(text.count(old) == 1, f"{name} does not contain {old!r} exactly once")
        return self._write(name, text.replace(old, new))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise StepFailedError(message)
