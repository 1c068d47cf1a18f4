"""The whole controller with HAProxy Data Plane APIs elsewhere: served over TLS, by the one of the tests."""

import base64
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import structlog.testing
import trio
import trustme

from haptic_trio.cli.serving.endpoints import ApiList
from haptic_trio.dataplane.dataplaneapi.endpoints import ApiAddress
from haptic_trio.dataplane.local.check import run_check
from haptic_trio.messages import InstanceDeployed, InstanceFailed
from tests.dataplane.dataplaneapi.test_network import serve
from tests.features.harness import Running, Site, controller, ingress
from tests.support.dataplaneapi.server import PASSWORD, FakeDataplaneApi
from tests.support.dataplaneapi.state import DIRECTORIES, ROOT
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


def write_secret(site: Site, password: str) -> None:
    """Write the Secret that the APIs' password is in."""
    values = {"dataplane_username": "admin", "dataplane_password": password}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    metadata = {"name": "haptic-trio", "namespace": "default"}
    site.write("secret", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


def write_certificate(site: Site, authority: trustme.CA, host: str) -> None:
    """Write a TLS Secret named like *host* with a new certificate for it."""
    issued = authority.issue_cert(host)
    chain, key = issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()
    data = {name: base64.b64encode(pem).decode() for name, pem in (("tls.crt", chain), ("tls.key", key))}
    metadata = {"name": host, "namespace": "default"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}
    site.write("certificate", secret)


def controlling(
    site: Site, binary: Path, authorities: Path | None, **urls: str
) -> AbstractAsyncContextManager[Running]:
    """Run the controller over *site* with the APIs at *urls*, by name."""
    addresses = tuple(ApiAddress(name=name, url=url) for name, url in urls.items())
    return controller(site, binary, apis=ApiList(addresses=addresses, authorities=authorities))


async def until(claim: Callable[[], bool]) -> None:
    """Return once *claim* holds; polls, because changes of the other state are not reported."""
    with trio.fail_after(60):
        while not claim():  # noqa: ASYNC110
            await trio.sleep(0.02)


def lay_out(api: FakeDataplaneApi, directory: Path) -> Path:
    """Write what *api* stores below *directory*, as it has it below its own root; return the configuration."""
    for store, files in api.stores.items():
        for name, content in files.items():
            path = directory / DIRECTORIES[store] / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content.replace(ROOT.encode(), os.fsencode(directory)))
    config = directory / "haproxy.cfg"
    config.write_text(api.text.replace(ROOT, os.fspath(directory)))
    return config


def addresses_of(api: FakeDataplaneApi) -> set[int]:
    """Return the ports of all servers that the process has."""
    return {server["port"] for server in api.process.servers.values()}


async def test_apis_follow_the_manifests_and_what_others_change_is_put_right(
    site: Site, haproxy_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = trustme.CA()
    directory = tmp_path_factory.mktemp("tls")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    context = {"httpPort": site.port, "httpsPort": free_port(), "bindAddress": "127.0.0.1"}
    site.write_config(
        dataplane={"kind": "dataplaneapi", "driftPreventionInterval": "1s"}, templating={"extraContext": context}
    )
    write_secret(site, PASSWORD)
    site.write_service("web", 9101)
    route = ingress("web", "web.localhost", "web")
    route["spec"]["tls"] = [{"hosts": ["web.localhost"], "secretName": "web.localhost"}]
    site.write("ingress-web", route)
    write_certificate(site, authority, "web.localhost")
    one, two = FakeDataplaneApi(), FakeDataplaneApi()
    with trio.fail_after(60), structlog.testing.capture_logs() as logs:
        async with (
            serve(one, directory, authority) as first,
            serve(two, directory, authority) as second,
            controlling(site, haproxy_binary, directory / "ca.pem", one=first, two=second) as running,
        ):
            await until(lambda: addresses_of(one) == addresses_of(two) == {9101})
            loads = one.loads, two.loads
            # A real HAProxy finds its files where the API has them.
            await run_check(haproxy_binary, [lay_out(one, directory)], limit=120)

            # An endpoint more, and another instead of the first: neither takes a reload.
            site.write_service("web", 9101, 9102)
            await until(lambda: addresses_of(one) == addresses_of(two) == {9101, 9102})
            site.write_service("web", 9103, 9102)
            await until(lambda: addresses_of(one) == addresses_of(two) == {9103, 9102})
            assert (one.loads, two.loads) == loads

            # A renewed certificate neither.
            (path,) = (path for path in one.process.certificates if "placeholder" not in path)
            former = one.process.certificates[path]
            write_certificate(site, authority, "web.localhost")
            await until(lambda: one.process.certificates[path] != former)
            assert (one.loads, two.loads) == loads

            # Another process turns a server away, and empties a map.
            key = next(iter(one.process.servers))
            one.process.servers[key]["admin_state"] = "drain"
            name = next(name for name, entries in one.process.maps.items() if entries)
            entries = one.process.maps[name][:]
            one.process.maps[name].clear()
            await until(
                lambda: one.process.servers[key]["admin_state"] == "ready" and one.process.maps[name] == entries
            )
            repaired = await running.wait(InstanceDeployed, lambda event: bool(event.result.drift))
            assert repaired.result.drift == {"server": 1, "map": 1}
            assert (one.loads, two.loads) == loads

            # The configuration is edited behind our back.
            one.replace(one.text.replace("retries", "# retries"))
            await until(lambda: one.loads > loads[0] and "# retries" not in one.text)

    assert one.violations == two.violations == []
    assert PASSWORD not in str(logs)


async def test_corrected_secret_is_used_from_the_next_iteration_on(site: Site, haproxy_binary: Path) -> None:
    site.write_config(dataplane={"driftPreventionInterval": "1h"})
    write_secret(site, "of-yesterday")
    site.write_service("web", 9101)
    site.write_ingress("web", "web.localhost", "web")
    api = FakeDataplaneApi()
    with trio.fail_after(60), structlog.testing.capture_logs() as logs:
        async with serve(api) as url, controlling(site, haproxy_binary, None, one=url) as running:
            failed = await running.wait(InstanceFailed)
            assert "401 unauthorized" in failed.error
            assert api.writes == []

            write_secret(site, PASSWORD)
            await until(lambda: addresses_of(api) == {9101})

    assert "of-yesterday" not in str(logs)
    assert PASSWORD not in str(logs)
    assert "of-yesterday" not in failed.error
