"""HTTP store of an iteration, opened with the policy of its configuration."""

from typing import NoReturn

import msgspec
import trio

from haptic_trio.channels import Change, Facts
from haptic_trio.config.model import Config
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.httpstore.fetching import Fetcher
from haptic_trio.httpstore.store import Accepted, Fetched, Happening, HttpStore, Refused, Report, Troubled
from haptic_trio.messages import (
    HttpContentAccepted,
    HttpContentChanged,
    HttpContentRefused,
    HttpFetched,
    ProblemsReported,
)
from haptic_trio.pipeline.contents.policy import fetch_policy


def open_contents(config: Config, report: Report, memory: ContentMemory | None = None) -> HttpStore:
    """Return a store that fetches what *config* allows; *memory* is what others have accepted before."""
    policy = fetch_policy(config.http)
    return HttpStore(policy, Fetcher(policy), report=report, memory=memory)


async def run_contents(store: HttpStore, changes: trio.MemorySendChannel[Change], *, facts: Facts) -> NoReturn:
    """Keep the contents of *store* fresh, and send every change, until cancelled. Takes ownership of *changes*."""

    async def announce(urls: tuple[str, ...]) -> None:
        message = HttpContentChanged(urls=urls)
        facts.tell(message)
        await changes.send(message)

    with changes:
        await store.run(announce)


def report_to(facts: Facts) -> Report:
    """Return what tells *facts* of all that happens."""

    def tell(happening: Happening) -> None:
        facts.tell(_message_of(happening))

    return tell


def _message_of(happening: Happening) -> msgspec.Struct:
    match happening:
        case Fetched():
            return HttpFetched(
                url=happening.label,
                outcome=happening.outcome,
                seconds=happening.seconds,
                bytes=happening.bytes,
            )
        case Troubled(label, problem):
            return ProblemsReported(source=label, problems=(problem,) if problem is not None else ())
        case Accepted():
            return HttpContentAccepted(url=happening.label, digest=happening.digest, bytes=happening.bytes)
        case Refused():
            return HttpContentRefused(
                url=happening.label,
                digest=happening.digest,
                problem=happening.problem,
                has_former=happening.has_former,
            )
