"""HTTP store of an iteration, opened with the policy of its configuration."""

from typing import NoReturn

import trio

from haptic_trio.channels import Change, EventBuffer
from haptic_trio.config.model import Config
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.httpstore.events import ContentEvent, FetchProblem, Report
from haptic_trio.httpstore.fetching import Fetcher
from haptic_trio.httpstore.store import HttpStore
from haptic_trio.messages import HttpContentChanged, ProblemsReported
from haptic_trio.pipeline.contents.policy import fetch_policy


def open_contents(config: Config, report: Report, memory: ContentMemory | None = None) -> HttpStore:
    """Return a store that fetches within the limits of *config*; *memory* holds contents that were accepted before."""
    policy = fetch_policy(config.http)
    return HttpStore(policy, Fetcher(policy), report=report, memory=memory)


async def run_contents(store: HttpStore, changes: trio.MemorySendChannel[Change], *, events: EventBuffer) -> NoReturn:
    """Refresh the contents of *store* and send each change, until cancelled. Takes ownership of *changes*."""

    async def send_change(urls: tuple[str, ...]) -> None:
        message = HttpContentChanged(urls=urls)
        events.record(message)
        await changes.send(message)

    with changes:
        await store.run(send_change)


def report_to(events: EventBuffer) -> Report:
    """Return a function that sends each event of a store to *events*."""

    def report(event: ContentEvent) -> None:
        if isinstance(event, FetchProblem):
            problems = (event.problem,) if event.problem is not None else ()
            events.record(ProblemsReported(source=event.url, problems=problems))
        else:
            events.record(event)

    return report
