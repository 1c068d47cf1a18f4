"""The agent's verbs over real sockets: what is bad is rejected with a clear error, and changes nothing."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
import trio

from haptic_trio.dataplane.agent.blobs import BlobStore
from haptic_trio.dataplane.agent.generations import cut_generation, make_manifest, new_pieces
from haptic_trio.dataplane.agent.limits import BURST
from haptic_trio.dataplane.agent.messages import (
    ActivateRequest,
    AgentLimits,
    AgentStatus,
    ErrorCode,
    Manifest,
    PatchRequest,
    Recipe,
    StageAnswer,
    StageRequest,
    decode_frames,
    encode_frames,
)
from haptic_trio.dataplane.agent.pieces import digest_recipe
from haptic_trio.dataplane.agent.tls import RenewedContext
from haptic_trio.haproxy.model import FileKind, Generation, digest_of, make_file
from haptic_trio.haproxy.plan.delta import make_delta
from haptic_trio.haproxy.plan.operations import Plan
from tests.support.components.agents import rejected, serving, until
from tests.support.components.endpoints import MemoryEndpoint
from tests.support.processes.haproxy import BASE, answering, build_generation

ONE, TWO = answering(1, "one"), answering(1, "two")
SMALL = AgentLimits(blob_bytes=1000, upload_bytes=4000, manifest_bytes=8000, store_bytes=6000, pieces=1000)


@asynccontextmanager
async def agent(
    root: Path, *, limits: AgentLimits | None = None, running: Generation | None = ONE
) -> AsyncIterator[tuple[MemoryEndpoint, httpx.AsyncClient]]:
    endpoint = MemoryEndpoint("local", running=running)
    async with serving(endpoint, root, limits=limits) as served, served.http() as http:
        yield endpoint, http


async def post(http: httpx.AsyncClient, path: str, request: msgspec.Struct) -> httpx.Response:
    return await http.post(path, content=msgspec.json.encode(request))


def activation(generation: Generation, base: Generation = ONE) -> ActivateRequest:
    return ActivateRequest(generation=generation.id, delta=make_delta(base, generation))


async def test_a_generation_is_staged_blob_by_blob_and_activated(tmp_path: Path) -> None:
    async with agent(tmp_path, running=None) as (endpoint, http):
        cut = cut_generation(TWO)
        pieces = new_pieces(cut, None)
        answer = await post(http, "/v1/generations", StageRequest(manifest=make_manifest(cut)))
        missing = msgspec.json.decode(answer.content, type=StageAnswer).missing
        assert set(missing) == set(pieces)
        some = dict(list(pieces.items())[:1])
        assert (await http.post("/v1/blobs", content=encode_frames(some))).json() == {"stored": 1}
        answer = await post(http, "/v1/generations", StageRequest(manifest=make_manifest(cut)))
        assert set(msgspec.json.decode(answer.content, type=StageAnswer).missing) == set(pieces) - set(some)
        await http.post("/v1/blobs", content=encode_frames(pieces))
        answer = await post(http, "/v1/generations", StageRequest(manifest=make_manifest(cut)))
        assert msgspec.json.decode(answer.content, type=StageAnswer).missing == ()
        assert endpoint.running is None
        answer = await post(http, "/v1/activate", ActivateRequest(generation=TWO.id))
        assert answer.json()["generation"] == TWO.id
        assert endpoint.running == TWO


async def test_status_has_the_running_generation_and_the_limits(tmp_path: Path) -> None:
    async with agent(tmp_path, limits=SMALL) as (_endpoint, http):
        status = msgspec.json.decode((await http.get("/v1/status")).content, type=AgentStatus)
        assert status.endpoint.generation == ONE.id
        assert status.limits == SMALL
        assert status.boot


async def test_blobs_of_what_runs_can_be_fetched_as_many_as_fit(tmp_path: Path) -> None:
    large = build_generation(BASE + "".join(f"backend b{n}\n    # {'x' * 900}\n" for n in range(10)))
    async with agent(tmp_path, limits=SMALL, running=large) as (_endpoint, http):
        assert (await http.get("/v1/running")).json()["generation"] == large.id
        manifest = msgspec.json.decode((await http.get(f"/v1/generations/{large.id}")).content, type=Manifest)
        assert manifest.config is not None
        wanted = list(manifest.config.steps)
        fetched: dict[str, bytes] = {}
        while wanted:
            answer = await http.post("/v1/blobs/fetch", json={"blobs": wanted})
            assert len(answer.content) <= SMALL.upload_bytes
            fetched |= decode_frames(answer.content, largest=1 << 20)
            wanted = [digest for digest in wanted if digest not in fetched]
        assert b"".join(fetched[str(digest)] for digest in manifest.config.steps) == large.text.encode()


async def test_uploads_survive_a_restart_of_the_agent(tmp_path: Path) -> None:
    cut = cut_generation(TWO)
    async with agent(tmp_path) as (_endpoint, http):
        await http.post("/v1/blobs", content=encode_frames(new_pieces(cut, None)))
    async with agent(tmp_path) as (_endpoint, http):
        answer = await post(http, "/v1/generations", StageRequest(manifest=make_manifest(cut)))
        assert msgspec.json.decode(answer.content, type=StageAnswer).missing == ()


async def test_uploads_that_have_become_part_of_a_generation_are_not_kept(tmp_path: Path) -> None:
    cut = cut_generation(TWO)
    async with agent(tmp_path) as (_endpoint, http):
        await http.post("/v1/blobs", content=encode_frames(new_pieces(cut, None)))
        await post(http, "/v1/generations", StageRequest(manifest=make_manifest(cut)))
        await post(http, "/v1/activate", ActivateRequest(generation=TWO.id))
    store = BlobStore(tmp_path / "blobs", limit=1 << 20)
    store.open()
    assert store.size == 0


async def test_a_truncated_upload_is_rejected_and_nothing_of_it_is_stored(tmp_path: Path) -> None:
    frames = encode_frames(new_pieces(cut_generation(TWO), None))
    async with agent(tmp_path) as (_endpoint, http):
        for cut in (len(frames) - 1, len(frames) - 1000, 10):
            rejection = rejected(await http.post("/v1/blobs", content=frames[: max(cut, 1)]))
            assert rejection.code is ErrorCode.TRUNCATED
            assert rejection.hint
    assert not list((tmp_path / "blobs").iterdir())


async def test_an_upload_that_breaks_off_on_the_way_stores_nothing(tmp_path: Path) -> None:
    frames = encode_frames(new_pieces(cut_generation(TWO), None))

    async def broken() -> AsyncIterator[bytes]:
        yield frames[:50]
        raise ConnectionAbortedError

    async with agent(tmp_path) as (endpoint, http):
        with pytest.raises(ConnectionAbortedError):
            await http.post("/v1/blobs", content=broken(), headers={"Content-Length": str(len(frames))})
        assert (await http.get("/v1/status")).status_code == 200
        assert endpoint.running == ONE
    assert not list((tmp_path / "blobs").iterdir())


async def test_a_blob_with_another_digest_is_rejected(tmp_path: Path) -> None:
    async with agent(tmp_path) as (_endpoint, http):
        rejection = rejected(await http.post("/v1/blobs", content=encode_frames({digest_of(b"one"): b"two"})))
        assert rejection.code is ErrorCode.WRONG_DIGEST
        assert digest_of(b"one") in rejection.message


@pytest.mark.parametrize("size", [SMALL.blob_bytes + 1, SMALL.upload_bytes + 1])
async def test_an_oversized_blob_is_rejected(tmp_path: Path, size: int) -> None:
    blob = b"x" * size
    async with agent(tmp_path, limits=SMALL) as (_endpoint, http):
        response = await http.post("/v1/blobs", content=encode_frames({digest_of(blob): blob}))
        assert response.status_code == 413
        assert rejected(response).code is ErrorCode.TOO_LARGE


async def test_oversized_request_without_content_length_is_rejected(tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _number in range(20):
            yield b" " * 1000

    async with agent(tmp_path, limits=SMALL) as (_endpoint, http):
        assert rejected(await http.post("/v1/activate", content=endless())).code is ErrorCode.TOO_LARGE


async def test_an_unknown_generation_is_rejected(tmp_path: Path) -> None:
    async with agent(tmp_path) as (endpoint, http):
        response = await post(http, "/v1/activate", ActivateRequest(generation=TWO.id))
        assert response.status_code == 409
        assert rejected(response).code is ErrorCode.GENERATION_UNKNOWN
        plan = PatchRequest(generation=TWO.id, running=ONE.id, plan=Plan())
        assert rejected(await post(http, "/v1/patch", plan)).code is ErrorCode.GENERATION_UNKNOWN
        assert rejected(await http.get(f"/v1/generations/{TWO.id}")).code is ErrorCode.GENERATION_UNKNOWN
        assert endpoint.running == ONE


async def test_an_unknown_base_is_rejected_and_that_which_runs_is_known(tmp_path: Path) -> None:
    async with agent(tmp_path) as (endpoint, http):
        for base in (answering(1, "three"), ONE):
            response = await post(http, "/v1/activate", activation(TWO, base))
            manifest = make_manifest(cut_generation(TWO), cut_generation(base))
            staged = await post(http, "/v1/generations", StageRequest(manifest=manifest))
            if base is not ONE:
                assert rejected(response).code is ErrorCode.BASE_UNKNOWN
                assert rejected(staged).code is ErrorCode.BASE_UNKNOWN
                assert endpoint.running == ONE
        assert endpoint.running == TWO


async def test_missing_blobs_are_named_and_without_them_there_is_no_generation(tmp_path: Path) -> None:
    async with agent(tmp_path) as (endpoint, http):
        cut, former = cut_generation(TWO), cut_generation(ONE)
        answer = await post(http, "/v1/generations", StageRequest(manifest=make_manifest(cut, former)))
        # What runs has the others.
        assert set(answer.json()["missing"]) == set(new_pieces(cut, former))
        rejection = rejected(await post(http, "/v1/activate", ActivateRequest(generation=TWO.id)))
        assert rejection.code is ErrorCode.GENERATION_UNKNOWN
        assert endpoint.running == ONE


async def test_a_delta_that_does_not_lead_where_it_says_is_rejected(tmp_path: Path) -> None:
    async with agent(tmp_path) as (endpoint, http):
        wrong = msgspec.structs.replace(make_delta(ONE, TWO), id="0" * 40)
        rejection = rejected(await post(http, "/v1/activate", ActivateRequest(generation="0" * 40, delta=wrong)))
        assert rejection.code is ErrorCode.BASE_UNKNOWN
        assert endpoint.running == ONE


@pytest.mark.parametrize(
    "path", ["../escape", "/etc/passwd", "maps/../../x", "maps//x", "haproxy.cfg", "process.cfg/x", "a\nb"]
)
async def test_a_file_that_would_lie_outside_is_rejected(tmp_path: Path, path: str) -> None:
    bad = build_generation(TWO.text, [make_file(FileKind.MAP, path, "content")])
    async with agent(tmp_path) as (endpoint, http):
        staging = StageRequest(manifest=make_manifest(cut_generation(bad)))
        for response in (
            await post(http, "/v1/activate", activation(bad)),
            await post(http, "/v1/generations", staging),
        ):
            assert response.status_code == 422
            assert rejected(response).code is ErrorCode.UNSAFE_PATH
        assert endpoint.running == ONE
    # Synchronous, and nothing runs any more.
    assert {entry.name for entry in os.scandir(tmp_path)} == {"tls", "blobs"}


async def test_paths_in_the_address_lead_nowhere(tmp_path: Path) -> None:
    async with agent(tmp_path) as (_endpoint, http):
        for path in ("/v1/generations/..%2f..%2fetc%2fpasswd", "/v1/blobs/..%2f..%2ftls%2fca.pem", "/v2/status", "/"):
            response = await http.get(path)
            assert response.status_code in {404, 405, 409}
            assert rejected(response).message


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", ErrorCode.TRUNCATED),
        (b'{"generation": "', ErrorCode.TRUNCATED),
        (b"[]", ErrorCode.BAD_REQUEST),
        (b"\xff\xfe", ErrorCode.BAD_REQUEST),
        (b'{"generation": "../../x"}', ErrorCode.BAD_REQUEST),
        (b'{"generation": 5}', ErrorCode.BAD_REQUEST),
        (b"{" * 20000, ErrorCode.BAD_REQUEST),
        (b'{"x":' + b"[" * 20000, ErrorCode.BAD_REQUEST),
    ],
)
async def test_what_is_not_a_request_is_rejected(tmp_path: Path, body: bytes, code: ErrorCode) -> None:
    async with agent(tmp_path) as (endpoint, http):
        rejection = rejected(await http.post("/v1/activate", content=body))
        assert rejection.code is code
        assert endpoint.running == ONE


async def test_a_manifest_with_wrong_steps_is_rejected(tmp_path: Path) -> None:
    manifest = make_manifest(cut_generation(TWO))
    empty = msgspec.structs.replace(manifest.config, steps=())
    outside = msgspec.structs.replace(manifest.config, steps=((5, 500),))
    many = msgspec.structs.replace(manifest.config, steps=((0, 1),) * 1001)
    async with agent(tmp_path, limits=SMALL) as (endpoint, http):
        for config, code in ((empty, "base_unknown"), (outside, "base_unknown"), (many, "bad_request")):
            bad = msgspec.structs.replace(manifest, base=ONE.id, config=config)
            rejection = rejected(await post(http, "/v1/generations", StageRequest(manifest=bad)))
            assert rejection.code == code
        assert endpoint.running == ONE


async def test_a_file_of_an_unknown_kind_is_rejected(tmp_path: Path) -> None:
    async with agent(tmp_path) as (_endpoint, http):
        desired = cut_generation(build_generation(TWO.text, [make_file(FileKind.MAP, "maps/a", "x y\n")]))
        body = msgspec.json.encode(StageRequest(manifest=make_manifest(desired))).replace(b'"map"', b'"device"')
        assert rejected(await http.post("/v1/generations", content=body)).code is ErrorCode.BAD_REQUEST


async def test_a_text_that_is_not_a_configuration_is_rejected(tmp_path: Path) -> None:
    text = TWO.text.replace("mode http", "modus http").encode()
    recipe = (digest_of(text),)
    manifest = Manifest(id="0" * 40, config=Recipe(digest_recipe(recipe), recipe))
    async with agent(tmp_path) as (endpoint, http):
        await http.post("/v1/blobs", content=encode_frames({digest_of(text): text}))
        rejection = rejected(await post(http, "/v1/generations", StageRequest(manifest=manifest)))
        assert rejection.code is ErrorCode.CONFIGURATION_REJECTED
        assert "modus" in rejection.message
        assert endpoint.running == ONE


async def test_a_plan_for_another_generation_is_rejected(tmp_path: Path) -> None:
    async with agent(tmp_path) as (endpoint, http):
        request = PatchRequest(generation=TWO.id, running="0" * 40, plan=Plan(), delta=make_delta(ONE, TWO))
        rejection = rejected(await post(http, "/v1/patch", request))
        assert rejection.code is ErrorCode.RUNNING_DIFFERS
        assert endpoint.running == ONE


async def test_too_many_requests_at_a_time_are_rejected(tmp_path: Path) -> None:
    limits = AgentLimits(concurrent=2)
    async with agent(tmp_path, limits=limits) as (endpoint, http):
        endpoint.seconds = 3600
        async with trio.open_nursery() as nursery:
            for _number in range(2):
                nursery.start_soon(post, http, "/v1/activate", activation(TWO))
            await endpoint.begun.wait_newer(0)

            async def is_busy() -> bool:
                return (await http.get("/v1/running")).status_code == 503

            await until(is_busy)
            assert rejected(await http.get("/v1/running")).code is ErrorCode.BUSY
            nursery.cancel_scope.cancel()


async def test_too_many_requests_in_a_row_are_rejected(tmp_path: Path) -> None:
    # One request is allowed at once, and another after three seconds, which is long for most of the others.
    async with agent(tmp_path, limits=AgentLimits(rate=1 / BURST)) as (_endpoint, http):
        responses = [await http.get("/v1/running") for _number in range(10)]
        assert responses[0].status_code == 200
        refused = [one for one in responses if one.status_code == 429]
        assert refused
        assert {rejected(one).code for one in refused} == {ErrorCode.TOO_MANY_REQUESTS}


async def test_a_request_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async with agent(tmp_path, limits=AgentLimits(deadline=0.2)) as (endpoint, http):
        endpoint.seconds = 3600
        response = await post(http, "/v1/activate", activation(TWO))
        assert response.status_code == 504
        assert rejected(response).code is ErrorCode.DEADLINE
        assert endpoint.running == ONE
        endpoint.seconds = 0
        assert (await post(http, "/v1/activate", ActivateRequest(generation=TWO.id))).status_code == 200


async def test_an_endpoint_that_fails_is_a_clear_error(tmp_path: Path) -> None:
    async with agent(tmp_path) as (endpoint, http):
        endpoint.fails = 1
        response = await post(http, "/v1/activate", activation(TWO))
        assert response.status_code == 502
        rejection = rejected(response)
        assert (rejection.code, rejection.message) == (ErrorCode.HAPROXY_UNREACHABLE, "told to fail")


async def test_a_client_that_reads_nothing_does_not_keep_the_agent_from_ending(tmp_path: Path) -> None:
    large = build_generation(TWO.text, [make_file(FileKind.FILE, "general/x", os.urandom(16 << 20))])
    endpoint = MemoryEndpoint("local", running=large)
    async with trio.open_nursery() as nursery:
        async with serving(endpoint, tmp_path, limits=AgentLimits(upload_bytes=32 << 20)) as served:
            wanted = list(new_pieces(cut_generation(large), None))
            address = httpx.URL(served.url)
            stream = await trio.open_tcp_stream(address.host, address.port or 0)
            context = RenewedContext(served.authority.issue("controller"), server=False)
            secure = trio.SSLStream(stream, context, server_hostname=address.host, https_compatible=True)
            async with served.http() as http:
                assert (await http.get("/v1/running")).status_code == 200
            body = msgspec.json.encode({"blobs": wanted})
            head = f"POST /v1/blobs/fetch HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            await secure.send_all(head.encode() + body)
            assert await secure.receive_some(1)
        await trio.aclose_forcefully(secure)
        nursery.cancel_scope.cancel()
