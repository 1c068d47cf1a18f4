"""Controller and agent authenticate each other by certificates, which can be renewed during operation."""

import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from haptic_trio.dataplane.agent.client import AgentAccessError
from haptic_trio.dataplane.agent.endpoint import RemoteAgent
from haptic_trio.dataplane.agent.messages import ErrorCode
from haptic_trio.dataplane.agent.tls import RenewedContext, TlsFiles, TlsFilesError
from haptic_trio.dataplane.endpoint import EndpointError, EndpointUnreachableError
from tests.support.components.agents import Authority, Serving, rejected, serving
from tests.support.components.endpoints import MemoryEndpoint
from tests.support.processes.haproxy import answering


@asynccontextmanager
async def agent(root: Path, *allowed: str) -> AsyncIterator[Serving]:
    async with serving(MemoryEndpoint("local", running=answering(1, "one")), root, allowed=allowed) as served:
        yield served


async def served_to(served: Serving, files: TlsFiles) -> EndpointError | None:
    async with served.remote(files) as remote:
        try:
            await remote.describe()
        except EndpointError as exc:
            return exc
    return None


async def test_a_client_that_the_authority_vouches_for_is_served(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        assert await served_to(served, served.authority.issue("anybody")) is None


async def test_an_expired_client_certificate_is_rejected(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        error = await served_to(served, served.authority.issue("controller", expired=True))
        assert isinstance(error, AgentAccessError)
        assert "expired" in str(error).lower()


async def test_a_client_of_another_authority_is_rejected(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        stranger = Authority(tmp_path / "stranger")
        error = await served_to(served, stranger.issue("controller", trusts=served.authority.path))
        assert isinstance(error, AgentAccessError)
        assert "unknown ca" in str(error).lower()


async def test_a_client_without_a_certificate_is_rejected(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        context = ssl.create_default_context(cafile=served.authority.path)
        async with httpx.AsyncClient(verify=context, base_url=served.url, trust_env=False) as http:
            with pytest.raises(httpx.TransportError):
                await http.get("/v1/status")


async def test_plain_connection_gets_no_answer(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        url = served.url.replace("https", "http")
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=0.5) as http:
            with pytest.raises(httpx.TransportError):
                await http.get("/v1/status")


async def test_only_allowed_names_are_served_and_others_get_the_reason(tmp_path: Path) -> None:
    async with agent(tmp_path, "controller", "second") as served:
        assert await served_to(served, served.authority.issue("controller")) is None
        assert await served_to(served, served.authority.issue("second")) is None
        error = await served_to(served, served.authority.issue("mallory"))
        assert isinstance(error, AgentAccessError)
        assert "mallory is not allowed" in str(error)
        async with served.http(served.authority.issue("mallory")) as http:
            response = await http.get("/v1/status")
            assert response.status_code == 403
            assert rejected(response).code is ErrorCode.CLIENT_NOT_ALLOWED


async def test_an_agent_with_a_certificate_for_another_host_is_not_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    files = authority.issue("elsewhere.example")
    async with serving(MemoryEndpoint("local"), tmp_path, authority=authority, files=files) as served:
        assert isinstance(await served_to(served, authority.issue("controller")), AgentAccessError)


async def test_an_agent_of_another_authority_is_not_trusted(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        stranger = Authority(tmp_path / "stranger")
        files = served.authority.issue("controller", trusts=stranger.path)
        assert isinstance(await served_to(served, files), AgentAccessError)


async def test_old_protocols_are_rejected(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        files = served.authority.issue("controller")
        context = ssl.create_default_context(cafile=files.authorities)
        context.load_cert_chain(files.certificate, files.key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.minimum_version = ssl.TLSVersion.TLSv1_1
        async with httpx.AsyncClient(verify=context, base_url=served.url, trust_env=False) as http:
            with pytest.raises(httpx.TransportError):
                await http.get("/v1/status")


async def serial_of(url: str, files: TlsFiles) -> int:
    """Return the serial number of the certificate that a new connection is shown."""
    context = RenewedContext(files, server=False)
    address = httpx.URL(url)
    stream = await trio.open_tcp_stream(address.host, address.port or 0)
    async with trio.SSLStream(stream, context, server_hostname=address.host, https_compatible=True) as secure:
        await secure.do_handshake()
        return int(secure.getpeercert()["serialNumber"], 16)


async def test_a_renewed_server_certificate_is_shown_to_new_connections_and_open_ones_go_on(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        files = served.authority.issue("controller")
        async with served.remote(files) as remote:
            await remote.describe()
            before = await serial_of(served.url, files)
            served.authority.issue("127.0.0.1")
            assert await serial_of(served.url, files) != before
            await remote.describe()


async def test_a_rotation_of_everything_under_an_open_client_goes_unnoticed(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    server, client = authority.issue("127.0.0.1"), authority.issue("controller")
    endpoint = MemoryEndpoint("local", running=answering(1, "one"))
    async with (
        serving(endpoint, tmp_path, authority=authority, files=server) as served,
        served.remote(client) as remote,
    ):
        await remote.describe()
        successor = Authority(tmp_path / "tls", "successor")
        for name in ("127.0.0.1", "controller"):
            successor.issue(name)
        successor.replace(authority.path)
        await remote.describe()
        await remote.activate(answering(1, "two"))
        assert endpoint.running == answering(1, "two")
        # Whom only the former authority vouches for is out.
        former = authority.issue("former", trusts=successor.path)
        assert isinstance(await served_to(served, former), AgentAccessError)


async def test_a_connection_of_a_former_authority_is_no_longer_served(tmp_path: Path) -> None:
    async with agent(tmp_path) as served, served.http() as http:
        assert (await http.get("/v1/status")).status_code == 200
        Authority(tmp_path / "other").replace(served.authority.path)
        response = await http.get("/v1/status")
        assert response.status_code == 421
        assert rejected(response).code is ErrorCode.TRUST_CHANGED


async def test_half_a_rotation_leaves_the_former_certificates_in_use(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        files = served.authority.issue("controller")
        before = await serial_of(served.url, files)
        key = tmp_path / "tls" / "127.0.0.1.key"
        content = key.read_bytes()
        key.write_bytes(b"half")
        assert await serial_of(served.url, files) == before
        key.unlink()
        assert await serial_of(served.url, files) == before
        key.write_bytes(content)
        assert await serial_of(served.url, files) == before


def test_files_that_cannot_be_used_at_first_are_an_error(tmp_path: Path) -> None:
    files = Authority(tmp_path / "tls").issue("127.0.0.1")
    files.key.write_bytes(b"no key")
    with pytest.raises(TlsFilesError, match=r"127\.0\.0\.1\.key"):
        RenewedContext(files, server=True)


async def test_an_agent_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    async with agent(tmp_path) as served:
        url, files = served.url, served.authority.issue("controller")
    served.url = url
    async with served.remote(files) as remote:
        assert isinstance(remote, RemoteAgent)
        with pytest.raises(EndpointUnreachableError):
            await remote.describe()
