"""`haptic-trio agent` as a process: killed at any point, it comes back and converges."""

import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.agent.endpoint import RemoteAgent
from haptic_trio.dataplane.agent.generations import cut_generation, make_manifest, new_pieces
from haptic_trio.dataplane.agent.messages import StageAnswer, StageRequest, StoredAnswer, encode_frames
from haptic_trio.dataplane.endpoint import EndpointInfo
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from tests.support.components.agents import AgentProcess, Authority, agent_process, remote_agent, until
from tests.support.processes.haproxy import answering, backend, fetch, forwarding, wait_for_body
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


async def answered(remote: RemoteAgent) -> EndpointInfo:
    """Return what the agent says once it answers."""
    found: list[EndpointInfo] = []

    async def ask() -> bool:
        found.append(await remote.describe())
        return True

    await until(ask)
    return found[0]


async def converge(remote: RemoteAgent, desired: Generation) -> None:
    """Deploy until it has worked, as the deployer does."""

    async def deploy() -> bool:
        await sync_endpoint(remote, desired)
        return True

    await until(deploy)


async def test_agent_killed_between_operations_continues_where_it_was(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    authority = Authority(instance_root / "tls")
    one, two = answering(port, "one"), answering(port, "two")
    with trio.fail_after(60):
        async with (
            agent_process(instance_root, haproxy_binary, authority, free_port()) as process,
            remote_agent(process.url, authority.issue("controller")) as remote,
        ):
            assert (await answered(remote)).generation == ""
            cut = cut_generation(one)
            pieces = new_pieces(cut, None)
            stage = StageRequest(manifest=make_manifest(cut))

            # Uploaded, killed: the blobs are there.
            await remote._client.upload(StoredAnswer, "/v1/blobs", encode_frames(pieces))
            await restart(process)
            await answered(remote)
            assert (await remote._client.post(StageAnswer, "/v1/generations", stage)).missing == ()

            # Staged, killed: a deployment does it again.
            await restart(process)
            await answered(remote)
            await sync_endpoint(remote, one)
            pid = (await remote.describe()).pid
            assert await fetch(port) == (200, "one")

            # Activated, killed: HAProxy goes on serving, is adopted, and nothing has to be done.
            await process.kill()
            assert await fetch(port) == (200, "one")
            process.start()
            assert (await answered(remote)).pid == pid
            assert not (await sync_endpoint(remote, one)).changed
            assert (await sync_endpoint(remote, two)).reloaded
            await wait_for_body(port, "two")


async def restart(process: AgentProcess) -> None:
    await process.kill()
    process.start()


async def test_killed_in_the_middle_of_deployments_it_converges(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    authority = Authority(instance_root / "tls")
    chance = random.Random(5)
    with trio.fail_after(120):
        async with (
            agent_process(instance_root, haproxy_binary, authority, free_port()) as process,
            remote_agent(process.url, authority.issue("controller")) as remote,
            backend("a") as first,
            backend("b") as second,
        ):
            await answered(remote)
            await converge(remote, forwarding(port, first))
            for number in range(4):
                server, answer = ((second, "b"), (first, "a"))[number % 2]
                # Every other one is a patch, the others need a load.
                desired = forwarding(port, server, balance=("roundrobin", "leastconn")[number // 2 % 2])
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(converge, remote, desired)
                    # real time: it is killed at a random moment of a deployment
                    await trio.sleep(chance.uniform(0, 0.06))
                    await process.kill()
                    status, body = await fetch(port)
                    assert (status, body) in {(200, "a"), (200, "b")}
                    process.start()
                assert await fetch(port) == (200, answer)
                assert (await answered(remote)).generation == desired.id


async def test_terminated_agent_leaves_haproxy_or_stops_it(instance_root: Path, haproxy_binary: Path) -> None:
    port, at = free_port(), free_port()
    authority = Authority(instance_root / "tls")
    with trio.fail_after(60):
        process = AgentProcess(instance_root, haproxy_binary, authority, at)
        process.start()
        async with remote_agent(process.url, authority.issue("controller")) as remote:
            await answered(remote)
            await sync_endpoint(remote, answering(port, "one"))
            assert await process.end(signal.SIGINT) == 0, process.output
            assert await fetch(port) == (200, "one")
            assert "Traceback" not in process.output
        async with (
            agent_process(instance_root, haproxy_binary, authority, at) as again,
            remote_agent(again.url, authority.issue("controller")) as remote,
        ):
            await answered(remote)
        with pytest.raises(OSError, match=r"refused|failed"):
            await fetch(port)


async def test_terminated_agent_stops_haproxy_after_the_grace_time(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    authority = Authority(instance_root / "tls")

    async def never_answer(stream: trio.SocketStream) -> None:
        async with stream:
            await trio.sleep_forever()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, never_answer, 0, host="127.0.0.1"))
            server = listeners[0].socket.getsockname()[1]
            process = AgentProcess(
                instance_root, haproxy_binary, authority, free_port(), "--on-exit", "stop", "--grace", "0"
            )
            process.start()
            try:
                async with remote_agent(process.url, authority.issue("controller")) as remote:
                    await answered(remote)
                    await sync_endpoint(remote, forwarding(port, server))
                async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                    await stream.send_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    began = trio.current_time()
                    assert await process.end(signal.SIGTERM) == 0
                    # The request would have lasted for the five seconds of its time limit, and so would HAProxy.
                    assert trio.current_time() - began < 4
            finally:
                with trio.CancelScope(shield=True):
                    await process.end(signal.SIGTERM)
            nursery.cancel_scope.cancel()


async def test_failure_to_start_is_exit_code_2(instance_root: Path, haproxy_binary: Path) -> None:
    at = free_port()
    authority = Authority(instance_root / "tls")
    async with agent_process(instance_root, haproxy_binary, authority, at) as first:
        async with remote_agent(first.url, authority.issue("controller")) as remote:
            with trio.fail_after(20):
                await answered(remote)
        second = AgentProcess(instance_root, haproxy_binary, authority, at)
        second.start()
        assert await trio.to_thread.run_sync(partial(second.wait, 20)) == 2
        assert "belongs to another controller" in second.output
        third = AgentProcess(instance_root / "elsewhere", haproxy_binary, authority, at)
        third.start()
        assert await trio.to_thread.run_sync(partial(third.wait, 20)) == 2
        assert f"cannot listen on 127.0.0.1:{at}" in third.output
        assert "Traceback" not in second.output + third.output


async def test_probes_have_their_own_port_and_are_ready_with_a_generation(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port, probes = free_port(), free_port()
    authority = Authority(instance_root / "tls")
    with trio.fail_after(60):
        async with (
            agent_process(
                instance_root, haproxy_binary, authority, free_port(), "--health-listen", f"127.0.0.1:{probes}"
            ) as process,
            remote_agent(process.url, authority.issue("controller")) as remote,
        ):
            await answered(remote)
            assert (await probe(probes, "/healthz"))[0] == 200
            assert (await probe(probes, "/readyz"))[0] == 503
            assert (await probe(probes, "/v1/status"))[0] == 404
            await sync_endpoint(remote, answering(port, "one"))
            status, body = await probe(probes, "/readyz")
            assert status == 200
            assert answering(port, "one").id in body
            os.kill((await remote.describe()).pid, signal.SIGKILL)

            async def is_ready() -> bool:
                workers = (await remote.fetch_status()).workers
                return [worker.draining for worker in workers] == [False] and (await probe(probes, "/readyz"))[0] == 200

            await until(is_ready)


async def probe(port: int, path: str) -> tuple[int, str]:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join([chunk async for chunk in stream])
    return int(answer.split()[1]), answer.decode()
