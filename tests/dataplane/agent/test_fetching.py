"""An agent that was broken into fills no memory of the controller by the generation that it says to run."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.dataplane.agent import endpoint as endpoint_module
from haptic_trio.dataplane.agent.client import AgentAddress, AgentAnswerError
from haptic_trio.dataplane.agent.endpoint import MOST_FETCHES, AgentLink, Cuts, RemoteAgent
from haptic_trio.dataplane.agent.generations import MissingBlobsError
from haptic_trio.dataplane.agent.messages import Manifest, Recipe, RunningAnswer
from haptic_trio.dataplane.agent.pieces import digest_recipe
from haptic_trio.haproxy.model import Generation, digest_of
from tests.support.components.agents import serving
from tests.support.components.endpoints import MemoryEndpoint
from tests.support.processes.haproxy import answering

RUNNING = "0" * 40


class Hostile:
    """A client of an agent that was broken into: it answers with *blobs*, whatever is asked for."""

    address = AgentAddress(name="hostile", url="https://agent.test")

    def __init__(self, manifest: Manifest, **blobs: bytes) -> None:
        self._manifest = manifest
        self._blobs = blobs
        self.fetches = 0

    async def get(self, kind: type[Any], _path: str) -> Any:
        return RunningAnswer(generation=RUNNING) if kind is RunningAnswer else self._manifest

    async def download(self, _path: str, request: Any) -> dict[str, bytes]:
        self.fetches += 1
        return {request.blobs[0]: b"wanted", **self._blobs}


class NeverComplete(Cuts):
    """Always misses another blob."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()

    async def assemble(self, manifest: Manifest, pieces: dict[str, bytes]) -> Generation:
        self.held |= pieces.keys()
        raise MissingBlobsError((digest_of(str(len(pieces)).encode()),))


def recipe_of(*pieces: bytes) -> Recipe:
    digests = tuple(map(digest_of, pieces))
    return Recipe(digest_recipe(digests), digests)


def remote(client: Any, cuts: Cuts) -> RemoteAgent:
    return RemoteAgent(AgentLink(client, cuts))


async def test_only_blobs_that_were_asked_for_are_kept_and_requests_are_limited() -> None:
    client, cuts = Hostile(Manifest(id=RUNNING, config=recipe_of(b"x")), junk=b"x" * 1000), NeverComplete()

    with pytest.raises(AgentAnswerError, match=f"more than {MOST_FETCHES} parts"):
        await remote(client, cuts).observe()

    assert client.fetches == MOST_FETCHES
    assert "junk" not in cuts.held
    assert len(cuts.held) == MOST_FETCHES - 1


async def test_blobs_of_more_than_the_largest_generation_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "FETCHED_BYTES", 3 * len(b"wanted"))
    client, cuts = Hostile(Manifest(id=RUNNING, config=recipe_of(b"x"))), NeverComplete()

    found = await remote(client, cuts).observe()

    assert found.running is None
    assert client.fetches == 4


async def test_a_short_recipe_of_a_very_large_configuration_counts_as_an_unknown_generation() -> None:
    piece = b"    # a comment\n" * 4096
    repeated = (digest_of(piece),) * (2 + endpoint_module.FETCHED_TEXT // len(piece))
    manifest = Manifest(id=RUNNING, config=Recipe(digest_recipe(repeated), repeated))
    client = Hostile(manifest)

    async def download(_path: str, _request: Any) -> dict[str, bytes]:
        return {digest_of(piece): piece}

    client.download = download  # type: ignore[assignment, method-assign]

    assert (await remote(client, Cuts()).observe()).running is None


async def test_an_agent_whose_generation_is_too_large_to_fetch_is_deployed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "FETCHED_TEXT", 10)
    endpoint = MemoryEndpoint("local")
    endpoint.running = answering(1, "former")
    async with serving(endpoint, tmp_path) as served, served.remote() as found:
        assert await found.fetch_running() is None
        await found.activate(answering(1, "desired"))

        assert endpoint.running == answering(1, "desired")
        assert await found.fetch_running() == answering(1, "desired")
