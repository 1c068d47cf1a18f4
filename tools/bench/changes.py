"""The kinds of change that are measured, each from the write to what a client sees of it."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from haptic_trio.k8s.resource import Resource, ref_of
from tools.bench.figures.meter import Trial
from tools.bench.rig.backends import backend_name
from tools.bench.rig.clusters import Cluster
from tools.bench.rig.controller import Controller, Line
from tools.bench.rig.objects import (
    Intervals,
    app_name,
    host_of,
    make_config,
    make_ingress,
    make_secret,
    make_service,
    make_slice,
    make_structure,
)
from tools.bench.rig.traffic import Accept, Answer, Ask, ask, ask_certificate, make_context, wait_for

TLS_NAME = "secure"
PATH_NAME = "paths"


class Changes:
    """Makes changes to a cluster of *size* apps, whose endpoints are at *ports*, and waits for their effects."""

    def __init__(self, cluster: Cluster, controller: Controller, ports: Sequence[int], size: int) -> None:
        self._cluster = cluster
        self._place = cluster.place
        self._controller = controller
        self._ports = ports
        self._size = size
        self._at: dict[str, int] = {}
        self._greetings = 0
        self._context = make_context()

    def move_endpoint(self, number: int) -> Trial:
        """Move the endpoint of an app to the next backend."""
        name, write, backend = self._prepare_move(number * 7 % self._size)
        return self._make(write, self._ask(name), lambda answer: answer.backend == backend)

    def add_known(self, number: int) -> Trial:
        """Add an Ingress to a Service that another Ingress names already."""
        name = f"known-{number:05d}"
        write = self._cluster.prepare(make_ingress(self._place, name, app_name(number * 7 % self._size)), exists=False)
        return self._make(write, self._ask(name), _is_ok)

    def add_new(self, number: int) -> Trial:
        """Add an Ingress to a Service, with its endpoint, that no Ingress has named yet."""
        name = f"fresh-{number:05d}"
        for each in (make_service(self._place, name), make_slice(self._place, name, self._ports[0])):
            self._cluster.prepare(each, exists=False)()
        self._controller.settle()
        write = self._cluster.prepare(make_ingress(self._place, name, name), exists=False)
        return self._make(write, self._ask(name), _is_ok)

    def delete(self, name: str) -> Trial:
        """Delete an Ingress."""
        ref = ref_of(make_ingress(self._place, name, name))
        return self._make(partial(self._cluster.remove, ref), self._ask(name), lambda answer: answer.status == 404)

    def delete_known(self, number: int) -> Trial:
        """Delete what `add_known` has added."""
        return self.delete(f"known-{number:05d}")

    def delete_new(self, number: int) -> Trial:
        """Delete the Ingress that `add_new` has added."""
        return self.delete(f"fresh-{number:05d}")

    def forget_new(self, number: int) -> None:
        """Delete Service and EndpointSlice that `add_new` has added."""
        name = f"fresh-{number:05d}"
        for each in (make_service(self._place, name), make_slice(self._place, name, 1)):
            self._cluster.remove(ref_of(each))

    def change_path(self, number: int) -> Trial:
        """Have an Ingress lead another path."""
        path = f"/v{number + 1}/"
        write = self._write(make_ingress(self._place, PATH_NAME, app_name(0), path=path))
        return self._make(write, self._ask(PATH_NAME, path), _is_ok)

    def change_certificate(self, _number: int) -> Trial:
        """Replace a certificate."""
        host = host_of(TLS_NAME)
        secret, der = make_secret(self._place, TLS_NAME, host)
        question = partial(ask_certificate, self._place.https_port, host, self._context)
        return self._make(self._write(secret), question, lambda answer: answer.certificate == der)

    def change_structure(self, number: int) -> None:
        """Change what reloads every HAProxy, and do not wait for it."""
        self._write(make_structure(self._place, f"v{number}"))()

    def burst(self, changes: int) -> Trial:
        """Make many endpoint changes as fast as they can be written, and wait until all have their effect."""
        wanted: dict[str, str] = {}
        moves = [self._prepare_move(number % self._size) for number in range(changes)]
        written, since = time.time(), time.monotonic()
        for name, write, backend in moves:
            write()
            # Of several changes of one app the last one counts, and is the latest of all.
            wanted.pop(name, None)
            wanted[name] = backend
        # The last one first: when it is there the others mostly are, and asking all of them takes its time.
        seconds = 0.0
        for name, backend in reversed(wanted.items()):
            is_there = self._ask(name)().backend == backend
            if not seconds or not is_there:
                accept = partial(_is_from, backend)
                seconds = wait_for(self._ask(name), accept, since=since, check=self._controller.check_alive)
        return Trial(seconds, written)

    def configure(self, intervals: Intervals) -> tuple[Trial, float]:
        """Change the ConfigMap: *intervals*, and a header of all responses.

        Returns when that header is seen, and how many seconds after the write
        the first deployment of the new iteration was completed.
        """
        self._greetings += 1
        greeting = f"v{self._greetings}"
        position = len(self._controller.log.read())
        write = self._write(make_config(self._place, intervals, greeting))
        seen = self._make(write, self._ask(app_name(0)), lambda answer: answer.greeting == greeting)
        opened = self._controller.wait_for(
            lambda line: line.event == "stage reached", since=position, what="stage of a new iteration"
        )
        prefix = f"{opened.fields['iteration']}-"

        def is_deployment(line: Line) -> bool:
            return line.event.startswith("instance ") and line.correlation.startswith(prefix)

        deployed = self._controller.wait_for(is_deployment, since=position, what="deployment of a new iteration")
        return seen, deployed.at - seen.written

    def move_during_configure(self, intervals: Intervals) -> list[float]:
        """Change the ConfigMap, and move one endpoint after another until the change is deployed.

        Returns how long each move took to reach a client.
        """
        before = len(self._controller.log.read())
        self._greetings += 1
        self._write(make_config(self._place, intervals, f"v{self._greetings}"))()

        def is_done() -> bool:
            lines = self._controller.log.read()[before:]
            opened = next((line for line in lines if line.event == "stage reached"), None)
            prefix = f"{opened.fields['iteration']}-" if opened is not None else "-"
            return any(line.event.startswith("instance ") and line.correlation.startswith(prefix) for line in lines)

        seconds: list[float] = []
        done_at = 0.0
        # Some more after the end: HAProxy has just been reloaded.
        while not done_at or time.monotonic() < done_at + 1:
            seconds.append(self.move_endpoint(len(seconds) + 1000 * self._greetings).seconds)
            if not done_at and is_done():
                done_at = time.monotonic()
        return seconds

    def wait_started(self, since: float) -> float:
        """Return how long after *since*, on the monotonic clock, the first app was answered."""
        return wait_for(self._ask(app_name(0)), _is_ok, since=since, check=self._controller.check_alive)

    def _prepare_move(self, number: int) -> tuple[str, Callable[[], None], str]:
        name = app_name(number)
        following = (self._at.get(name, 0) + 1) % len(self._ports)
        self._at[name] = following
        write = self._write(make_slice(self._place, name, self._ports[following]))
        return name, write, backend_name(following)

    def _write(self, resource: Resource) -> Callable[[], None]:
        return self._cluster.prepare(resource, exists=True)

    def _ask(self, name: str, path: str = "/") -> Ask:
        return partial(ask, self._place.http_port, host_of(name), path)

    def _make(self, write: Callable[[], None], question: Ask, accept: Accept) -> Trial:
        written, since = time.time(), time.monotonic()
        write()
        return Trial(wait_for(question, accept, since=since, check=self._controller.check_alive), written)


def _is_ok(answer: Answer) -> bool:
    return answer.status == 200


def _is_from(backend: str, answer: Answer) -> bool:
    return answer.backend == backend
