"""Whichever contents are bad, and in whatever way, they and no others are found to be, by a model of the rest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.channels import EventBuffer
from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Files, Generation
from haptic_trio.httpstore.content import Content
from haptic_trio.httpstore.events import HttpContentRejected
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.pipeline.validate import Validator
from haptic_trio.templating.values.subjects import Rejection, RenderedText, Subject
from tests.support.components.contents import Kept, Servers, request_of
from tests.support.components.endpoints import generation
from tests.support.components.pipeline import config_of

KINDS = ("good", "fragment", "render", "parse", "check")
"""Effect of a content on the configuration: none, a broken fragment, or a rejection in a phase."""


def rejection_of(name: str) -> Rejection:
    subject = Subject(kind="Service", namespace="default", name=name, resource_version="1")
    return Rejection("service", subject, Problem(message=f"{name} is broken"))


class World(Renderer, Validator):
    """Model of renderer and validator: contents fail by their first word, objects and phases as configured."""

    def __init__(self, kept: Kept) -> None:
        Renderer.__init__(self, config_of("global\n"), kept.store)
        Validator.__init__(self, Path(), check_timeout=1.0)
        self.kept = kept
        self.broken: set[str] = set()
        """Objects that fail with any contents."""
        self.fails_in = ""
        """The phase that rejects every configuration."""
        self.count = 0

    def _kinds(self, contents: Mapping[str, Content]) -> list[str]:
        return [content.text.split()[0] for content in contents.values()]

    def _judge(self, phase: str, contents: Mapping[str, Content]) -> None:
        if self.fails_in == phase or phase in self._kinds(contents):
            raise RejectedError(phase, (Problem(message=f"rejected in {phase}"),))

    async def render(self, *_arguments: Any) -> Rendered:
        await trio.lowlevel.checkpoint()
        offers = self.contents.offers()
        found = {request.key: offers.find(request) for request in REQUESTS}
        contents = {key: offer for key, offer in found.items() if isinstance(offer, Content)}
        self.count += 1
        self._judge("render", contents)
        names = self.broken | {text.text for text in contents.values() if text.text.startswith("fragment")}
        return Rendered(
            files=Files.of([]),
            texts={"haproxy.cfg": RenderedText.of("global\n")},
            produced={},
            rejections=tuple(rejection_of(name) for name in sorted(names)),
            serial=self.count,
            contents=contents,
        )

    async def parse(self, rendered: Rendered) -> Generation:
        await trio.lowlevel.checkpoint()
        self._judge("parse", rendered.contents)
        return generation("a")

    async def check(self, _generation: Generation, rendered: Rendered, *, idle: bool = False) -> tuple[Problem, ...]:
        await trio.lowlevel.checkpoint()
        self._judge("check", rendered.contents)
        return ()


REQUESTS = [request_of(f"https://lists.example.com/{number}") for number in range(5)]
KIND = st.sampled_from(KINDS)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(KIND, min_size=5, max_size=5), min_size=1, max_size=4),
    st.lists(st.sets(st.sampled_from(["one", "two"])), min_size=4, max_size=4),
)
def test_the_bad_contents_are_rejected_and_all_others_accepted(rounds: list[list[str]], broken: list[set[str]]) -> None:
    async def main() -> None:
        kept = Kept(Servers({request.url: "good first" for request in REQUESTS}))
        await kept.want(*REQUESTS)
        world = World(kept)
        pipeline = Pipeline(Stores(()), world, world, Quarantine(), EventBuffer())
        await pipeline.run("first")
        for number, kinds in enumerate(rounds):
            kept.happened.clear()
            texts = {request: f"{kind} {number}" for request, kind in zip(REQUESTS, kinds, strict=True)}
            kept.servers.texts.update({request.url: text for request, text in texts.items()})
            await kept.refresh()
            world.broken, world.count = broken[number], 0
            await pipeline.run(f"{number}")

            bad = {request.label for request, text in texts.items() if not text.startswith("good")}
            assert {
                one.url for one in kept.reported(HttpContentRejected) if isinstance(one, HttpContentRejected)
            } == bad
            assert kept.store.pending() == {}
            assert world.count <= 3 * (len(REQUESTS) + 3)
            for request, text in texts.items():
                assert kept.text(request) == text or request.label in bad
                assert (kept.text(request) or "").startswith("good")

    trio.run(main)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(("render", "parse", "check")), st.sets(st.sampled_from(["one", "two"])))
def test_no_content_is_rejected_for_a_fault_that_exists_without_it(phase: str, broken: set[str]) -> None:
    async def main() -> None:
        kept = Kept(Servers({request.url: "good first" for request in REQUESTS}))
        await kept.want(*REQUESTS)
        world = World(kept)
        pipeline = Pipeline(Stores(()), world, world, Quarantine(), EventBuffer())
        world.fails_in, world.broken = phase, broken
        for _ in range(3):
            with pytest.raises(RejectedError) as caught:
                await pipeline.run("it")
            assert caught.value.phase == phase
        assert kept.reported(HttpContentRejected) == []
        assert len(kept.store.pending()) == len(REQUESTS)
        world.fails_in = ""
        await pipeline.run("it")
        assert kept.store.pending() == {}

    trio.run(main)
