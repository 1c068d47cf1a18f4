"""Generations for a Data Plane API, and endpoints for the one of the tests."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache

import httpx
import trustme

from haptic_trio.dataplane.dataplaneapi.client import ApiClient, Credentials, open_api_client
from haptic_trio.dataplane.dataplaneapi.endpoint import DataplaneApiEndpoint, open_dataplaneapi_endpoint
from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import AuxFile, Config, FileKind, Generation, make_file, make_generation
from tests.support.dataplaneapi.server import PASSWORD, FakeDataplaneApi
from tests.support.dataplaneapi.state import ROOT, load

CREDENTIALS = Credentials(username="admin", password=PASSWORD)
HOSTS = "app.example.com app\n"
TEXT = """\
global
  log stdout format raw local0 info
  stats timeout 30s
  # kept nowhere
defaults base
  mode http
frontend http from base
  bind 127.0.0.1:18081
  use_backend %[req.hdr(host),lower,map({root}/maps/host.map,other)]
backend other from base
  http-request return status 404
backend app from base
  balance {balance}
{servers}
"""


def generation(
    *,
    hosts: str | None = HOSTS,
    servers: tuple[str, ...] = ("a 127.0.0.1:9101 check", "b 127.0.0.1:9102 check"),
    balance: str = "roundrobin",
    extra: str = "",
    files: tuple[AuxFile, ...] = (),
) -> Generation:
    """Return a generation of one application; *extra* are lines at the end."""
    lines = "\n".join(f"  server {server}" for server in servers)
    text = TEXT.format(root=ROOT, balance=balance, servers=lines) + extra
    known = (map_file("host.map", hosts),) if hosts is not None else ()
    return make_generation(parse_config(text), (*known, *files))


def map_file(name: str, content: str) -> AuxFile:
    """Return a map where the API keeps maps."""
    return make_file(FileKind.MAP, f"{ROOT}/maps/{name}", content)


@cache
def pem(name: str) -> bytes:
    """Return certificate and key for *name*; the same every time."""
    return renewed(name)


def renewed(name: str) -> bytes:
    """Return a new certificate with its key for *name*."""
    issued = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert(name, key_type=trustme.KeyType.ECDSA)
    return issued.private_key_and_cert_chain_pem.bytes()


def certificate(name: str, content: bytes) -> AuxFile:
    """Return a certificate where the API keeps certificates."""
    return make_file(FileKind.CERT, f"{ROOT}/ssl/{name}", content, secret=True)


def crt_list(name: str, *certificates: str) -> AuxFile:
    """Return a list of certificates."""
    content = "".join(f"{ROOT}/ssl/{one}\n" for one in certificates)
    return make_file(FileKind.CRT_LIST, f"{ROOT}/ssl/{name}", content)


def general(name: str, content: str) -> AuxFile:
    """Return a general file."""
    return make_file(FileKind.FILE, f"{ROOT}/general/{name}", content)


@asynccontextmanager
async def open_endpoint(
    api: FakeDataplaneApi, *, credentials: Credentials = CREDENTIALS, schedules_reloads: bool = False
) -> AsyncIterator[DataplaneApiEndpoint]:
    """An endpoint of *api*, without a network."""
    async with open_dataplaneapi_endpoint(
        "pod-1",
        "http://api.test:5555",
        credentials,
        schedules_reloads=schedules_reloads,
        transport=httpx.ASGITransport(api),
    ) as endpoint:
        yield endpoint


def runs(api: FakeDataplaneApi, desired: Generation) -> bool:
    """Whether what is stored is *desired*, and the process is as if it had just loaded that."""
    stored = {f"{ROOT}/maps/{name}": content for name, content in api.stores["maps"].items()}
    stored |= {f"{ROOT}/ssl/{name}": content for name, content in api.stores["ssl_certificates"].items()}
    stored |= {f"{ROOT}/ssl/{name}": content for name, content in api.stores["ssl_crt_lists"].items()}
    stored |= {f"{ROOT}/general/{name}": content for name, content in api.stores["general"].items()}
    stored.pop(f"{ROOT}/general/haptic-trio.json", None)
    return (
        stored == {path: Paths({}).send_file(file) for path, file in desired.files.items()}
        and _words(parse_config(api.text)) == _words(desired.config)
        and is_as_loaded(api)
    )


def is_as_loaded(api: FakeDataplaneApi) -> bool:
    """Whether the process is as if it had just loaded what is stored."""
    fresh = load(api.text, api.stores)
    return (
        {name: _state(server) for name, server in api.process.servers.items()}
        == {name: _state(server) for name, server in fresh.servers.items()}
        and {name: sorted(entries) for name, entries in api.process.maps.items()}
        == {name: sorted(entries) for name, entries in fresh.maps.items()}
        and fresh.certificates.items() <= api.process.certificates.items()
        and {path: sorted(lines) for path, lines in api.process.crt_lists.items()}
        == {path: sorted(lines) for path, lines in fresh.crt_lists.items()}
    )


def _state(server: dict[str, object]) -> tuple[object, ...]:
    return tuple(server[key] for key in ("address", "port", "weight", "admin_state"))


def _words(config: Config) -> object:
    return {section.key: sorted(line.words for line in section.directives) for section in config.sections}


def open_client(api: FakeDataplaneApi, *, answer_bytes: int = 1 << 20) -> AbstractAsyncContextManager[ApiClient]:
    """A client of *api*, without a network."""
    transport = httpx.ASGITransport(api)
    return open_api_client("pod-1", "http://api.test", CREDENTIALS, transport=transport, answer_bytes=answer_bytes)


async def deploy(api: FakeDataplaneApi, desired: Generation) -> None:
    """Deploy with an endpoint of its own, to an API that is well."""
    api.before = None
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
    assert api.violations == []
    assert runs(api, desired)


def relative(text: str) -> str:
    """Return *text* with the files named as a configuration for any endpoint does."""
    return text.replace(f"{ROOT}/", "")


def relative_generation(*, hosts: str = HOSTS, extra: str = "", files: tuple[AuxFile, ...] = ()) -> Generation:
    """Return a generation that names its files by relative paths."""
    absolute = generation(hosts=hosts, extra=extra, files=files)
    renamed = [
        make_file(file.kind, relative(file.path), relative(file.content.decode()), secret=file.secret)
        for file in absolute.files.values()
    ]
    return make_generation(parse_config(relative(absolute.text)), renamed)


async def writes_of(api: FakeDataplaneApi, desired: Generation) -> list[str]:
    """Return what a deployment writes, with an endpoint of its own, as another controller has."""
    api.calls.clear()
    async with open_endpoint(api) as endpoint:
        await sync_endpoint(endpoint, desired)
    assert api.violations == []
    return api.writes
