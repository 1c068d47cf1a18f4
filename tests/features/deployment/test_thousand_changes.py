"""New host, Ingress, backend, endpoints and certificate, one after another, under traffic that does not notice."""

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.binary import probe_version
from tests.features.harness import Site
from tests.support.processes.launcher import Program, launcher
from tests.support.processes.ports import free_port
from tests.support.scenarios.crash_rig import Instance
from tests.support.scenarios.thousand import (
    Clients,
    Figures,
    add_one_after_another,
    count_reloads,
    make_newcomers,
    resident,
    wait_served,
)
from tests.support.scenarios.witness import answering

pytestmark = [pytest.mark.haproxy, pytest.mark.crash]

BACKENDS_AT_RUNTIME = (3, 4)


async def change_so_often(root: Path, binary: Path, count: int) -> tuple[Figures, Clients, int]:
    """Make *count* changes; return what they took, what clients saw of it, and how often HAProxy was reloaded."""
    site, https = Site(root, free_port()), free_port()
    site.write_config(
        dataplane={"driftPreventionInterval": "10s"},
        templating={"extraContext": {"httpPort": site.port, "httpsPort": https, "bindAddress": "127.0.0.1"}},
    )
    site.write_class()
    stable, *newcomers = await trio.to_thread.run_sync(make_newcomers, count)
    figures, clients = Figures(), Clients({False: site.port, True: https})
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(answering("here"))
        start = await stack.enter_async_context(launcher())
        command = ["serve", "--manifests", str(site.manifests), "--state-dir", str(site.state)]
        command += ["--listen", "127.0.0.1:0", "--haproxy", str(binary), "--on-exit", "stop"]
        controller = Program(start, root, "controller", command)
        instance = Instance(site.state / "instances/local-1", controller, binary)
        site.write(stable.name, *stable.objects(port))
        await controller.start()
        try:
            with trio.fail_after(30):
                await wait_served(stable, https)
            before, sizes = await count_reloads(instance), measure(instance)
            async with trio.open_nursery() as nursery:
                for tls in (False, True):
                    nursery.start_soon(partial(clients.run, tls=tls))
                nursery.start_soon(clients.run_kept)
                await add_one_after_another(site, newcomers, port, https, figures=figures)
                nursery.cancel_scope.cancel()
            reloads = await count_reloads(instance) - before
            figures.memory = {name: (sizes[name], after) for name, after in measure(instance).items()}
            for one in newcomers[:: max(1, count // 20)]:
                with trio.fail_after(5):
                    await wait_served(one, https)
        except BaseException:
            print(controller.output[-6000:])  # noqa: T201
            raise
        finally:
            with trio.CancelScope(shield=True):
                await controller.end()
    print(  # noqa: T201
        f"{figures.report()}; {reloads} reloads; {clients.answered} answers and {len(clients.failures)} failures on"
        f" new connections; {clients.kept_answered} answers on kept ones, of which {clients.kept_retried} were closed"
    )
    return figures, clients, reloads


def measure(instance: Instance) -> dict[str, int]:
    """Return the resident KiB of each process."""
    return {
        "worker": resident(instance.worker),
        "master": resident(instance.master),
        "controller": resident(instance.owner.pid),
    }


async def change_and_judge(root: Path, binary: Path, *, at_runtime: int, with_reloads: int) -> None:
    version = (await trio.to_thread.run_sync(probe_version, binary)).number
    has_backends = version[:2] >= BACKENDS_AT_RUNTIME
    count = at_runtime if has_backends else with_reloads
    _, clients, reloads = await change_so_often(root, binary, count)
    assert not clients.failures
    assert clients.answered > count
    assert clients.kept_answered > count
    if has_backends:
        assert reloads == 0
        assert clients.kept_retried == 0
    else:
        # A new backend is what reloads; certificate, host and endpoints come along.
        assert reloads == count


async def test_everything_that_is_new_comes_without_a_reload_where_backends_can(
    instance_root: Path, haproxy_binary: Path
) -> None:
    with trio.fail_after(120):
        await change_and_judge(instance_root, haproxy_binary, at_runtime=100, with_reloads=25)


@pytest.mark.soak
async def test_a_thousand_times(instance_root: Path, haproxy_binary: Path) -> None:
    with trio.fail_after(900):
        await change_and_judge(instance_root, haproxy_binary, at_runtime=1000, with_reloads=50)
