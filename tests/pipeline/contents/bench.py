"""A pipeline whose templates fetch contents, for tests of what becomes of these."""

from pathlib import Path
from typing import Any

import trio

from haptic_trio.haproxy.model import Generation
from haptic_trio.httpstore.content import FetchError
from haptic_trio.httpstore.events import HttpContentAccepted, HttpContentRejected
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.render import Renderer
from tests.support.components.contents import Kept, Servers
from tests.support.components.pipeline import Bench, config_of

LIMIT = 60.0
"""Seconds; checks are made at low priority, and the machine may be busy."""
LIST = "https://lists.example.com/"
CONFIG = """\
global
    maxconn 100
defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend f
    bind 127.0.0.1:8080
"""


def lines_of(name: str, value: str) -> str:
    """Return a template that makes an entry of each line of the list *name*."""
    return f"""\
{{% for line in http.fetch("{LIST}{name}").splitlines() %}}
{{{{ line | map_key }}}} {value}
{{% endfor %}}
"""


EACH = (
    CONFIG
    + """\
{% each svc in resources.services as "service" %}
backend {{ ident(svc.metadata.name) }}
{% for line in http.fetch("https://lists.example.com/" ~ svc.metadata.name).splitlines() %}
    server s{{ loop.index }} {{ line | address }}:80
{% endfor %}

{% endeach %}
"""
)


class ContentBench(Bench):
    """A pipeline whose templates fetch from servers that the test speaks for."""

    def __init__(self, binary: Path, template: str, texts: dict[str, str | FetchError], **fields: Any) -> None:
        self.kept = Kept(Servers({f"{LIST}{name}": text for name, text in texts.items()}))
        super().__init__(binary, template, **fields)

    def configure(self, template: str, **fields: Any) -> None:
        super().configure(template, **fields)
        self.renderer = Renderer(config_of(template, **fields), self.kept.store)
        self.pipeline = Pipeline(self.stores, self.renderer, self.validator, self.quarantine, self.events)

    async def give(self, **texts: str) -> None:
        """Have the servers give *texts*, and these fetched."""
        self.kept.servers.texts.update({f"{LIST}{name}": text for name, text in texts.items()})
        await self.kept.refresh()

    async def made(self) -> Generation:
        """Return what a cycle makes."""
        with trio.fail_after(LIMIT):
            return (await self.run()).generation

    @property
    def rejected(self) -> list[tuple[str, str]]:
        """Rejected contents and the reasons."""
        return [
            (one.url.removeprefix(LIST), one.problem.message)
            for one in self.kept.reported(HttpContentRejected)
            if isinstance(one, HttpContentRejected)
        ]

    @property
    def accepted(self) -> int:
        """How often a content was accepted."""
        return len(self.kept.reported(HttpContentAccepted))
