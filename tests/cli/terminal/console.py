"""A console that is not there: answers and messages for the terminal UI, and its screen as lines."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import trio

from haptic_trio.cli.terminal.app import App
from haptic_trio.cli.terminal.session import Session

NOW = {"clock": 100.0, "unix": 1_700_000_000.0}
STATE: dict[str, Any] = {
    "iteration": {"number": 3, "opened": 1.0, "stage": 5, "is_ready": True, "config_version": "7"},
    "stages": [{"stage": 5, "name": "reconcile", "seconds": 0.2}],
    "is_leader": True,
    "identity": "a",
    "components": [{"name": "deployer", "busy": False, "stalled": False, "detail": ""}],
    "instances": [
        {
            "name": "local-1",
            "generation": "abc",
            "correlation": "1-5",
            "at": 90.0,
            "operations": 2,
            "reloads": 3,
            "last_reload": {
                "at": 80.0,
                "correlation": "1-4",
                "reasons": ["backend shop added"],
                "objects": ["Ingress default/shop"],
            },
        }
    ],
    "fleet": None,
    "cycles": [
        {"correlation": "1-4", "reason": "resources changed", "objects": ["Ingress default/shop"], "seen": 79.0}
        | {"render": 0.01, "outcome": "deployed"}
    ],
    "fragments_rendered": 10,
    "fragments_reused": 90,
    "quarantined": 1,
    "problems": {"manifests": ["site/x.yaml:3: no kind"]},
    "objects": {
        "quarantined": 1,
        "warnings": 0,
        "listed": [
            {
                "object": "Ingress default/bad",
                "reason": "Quarantined",
                "problem": "bad\x1b[31mhost",
                "serving": "nothing",
            }
        ],
        "more": 0,
    },
}


def route(number: int, **fields: Any) -> dict[str, Any]:
    """Return a route."""
    return {
        "host": f"host{number}.test",
        "path": "/",
        "match": "prefix",
        "kind": "Ingress",
        "namespace": "default",
        "name": f"i{number}",
        "backend": f"b{number}",
        "servers": 2,
        "state": "serving",
        "reason": "",
        "place": f"maps/path-prefix.map:{number + 1}",
        "listener": "",
        **fields,
    }


class FakeSession:
    """Stands for the connection: answers with *answers* by topic, and notes requests and subscriptions."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.followed: list[dict[str, Any]] = []

    async def ask(self, topic: str, **arguments: Any) -> Any:
        """Return the answer, or raise it."""
        self.asked.append((topic, arguments))
        answer = self.answers[topic]
        if isinstance(answer, Exception):
            raise answer
        return answer(**arguments) if callable(answer) else answer

    def follow(self, subscription: Callable[[], dict[str, Any]]) -> None:
        """Note the subscription."""
        self.followed.append(subscription())


class Ui:
    """The UI over a fake session; tasks run when `settle` is called."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self._tasks: list[tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]] = []
        self.size = (80, 24)
        self.app = App(cast("Session", session), lambda task, *arguments: self._tasks.append((task, arguments)))
        self.app.welcome({"now": NOW})

    def take(self, kind: str, value: Any) -> None:
        """Deliver a message."""
        self.app.take({"kind": kind, "value": value})

    async def press(self, *keys: str) -> list[str]:
        """Press *keys*, run the requests that they cause, and return the lines of the screen."""
        for key in keys:
            self.app.screen.keypress(self.size, key)
            while self._tasks:
                task, arguments = self._tasks.pop(0)
                await task(*arguments)
                await trio.lowlevel.checkpoint()
        return self.lines()

    async def write(self, key: str, text: str) -> list[str]:
        """Press *key*, write *text* and Enter, and return the lines of the screen."""
        return await self.press(key, *text, "enter")

    def lines(self) -> list[str]:
        """Return the lines of the screen."""
        return [line.decode().rstrip() for line in self.app.screen.render(self.size, True).text]
