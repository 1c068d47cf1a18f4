"""Two controllers, two HAProxy instances, and everything that happens to them in a day, while clients go on."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from haptic_trio.k8s.resource import Resource
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.controllers import Site, backend, installed
from tests.cluster.workloads.manifests import service
from tests.cluster.workloads.traffic import Answer, BadAnswerError, flowing, send_request
from tests.support.kubernetes import tls_secret
from tests.support.traffic.servers import dns_names

pytestmark = pytest.mark.cluster
LIMIT = 400.0
SECURE = "secure.test"


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Print how long the block takes."""
    began = trio.current_time()
    yield
    print(f"{what}: {trio.current_time() - began:.2f} s")  # noqa: T201


async def answer_of(site: Site, host: str, *, tls: bool = False) -> Answer | None:
    try:
        return await send_request(site.connect(tls), host, tls=tls)
    except BadAnswerError:
        return None


async def pods_answering(site: Site, host: str, rounds: int) -> set[str]:
    """Return the backends that answer some requests in a row."""
    answers = [await answer_of(site, host) for _ in range(rounds)]
    return {json.loads(one.body)["pod"] for one in answers if one is not None and one.status == 200}


async def until_answered_by(site: Site, host: str, pods: list[Resource]) -> None:
    wanted = {pod["metadata"]["name"] for pod in pods}

    async def is_answered() -> bool:
        return await pods_answering(site, host, 4 * len(wanted)) == wanted

    await until(is_answered)


class Certificates:
    """Certificates of one host, each with another name beside it by which it is known."""

    def __init__(self) -> None:
        self._authority = trustme.CA()

    def secret(self, mark: str) -> Resource:
        """Return the Secret with a new certificate."""
        issued = self._authority.issue_cert(SECURE, mark)
        found = tls_secret("secure", issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())
        return {**found, "metadata": {"name": "secure"}}


async def until_shown(site: Site, mark: str) -> None:
    async def is_shown() -> bool:
        answer = await answer_of(site, SECURE, tls=True)
        return answer is not None and answer.status == 200 and mark in dns_names(answer.certificate)

    await until(is_shown)


async def test_everything_changes_and_no_request_fails(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    certificates = Certificates()

    async def have_tls(site: Site) -> None:
        await site.apply(certificates.secret("first.test"), site.ingress("secure", SECURE, tls_secret="secure"))

    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path, prepare=have_tls, instances=2) as site:
            await until_shown(site, "first.test")
            async with flowing(site.traffic("web.test", SECURE, tls_host=SECURE)) as traffic:
                await change_routes(site)
                await move_backends(site)
                with reported("Secret rotation"):
                    await site.apply(certificates.secret("second.test"))
                    await until_shown(site, "second.test")
                with reported("ConfigMap change"):
                    await change_configuration(site)
                with reported("HAProxy pod added"):
                    await scale_instances(site, 3)
                with reported("HAProxy pod removed"):
                    await scale_instances(site, 2)
                await lose_leader(site)
                await stop_leader(site)
            assert traffic.kept_answered > 100
            print(f"{traffic.answered} requests, {traffic.kept_lost} kept connections ended")  # noqa: T201


async def change_routes(site: Site) -> None:
    more = partial(site.ingress, "more", "more.test")
    with reported("Ingress added"):
        await site.apply(more())
        await site.until_served("more.test")
    with reported("Ingress changed"):
        await site.apply(more(path="/elsewhere"))
        await site.until_served("more.test", status=404)
    with reported("Ingress deleted"):
        await site.apply(more())
        await site.until_served("more.test")
        await site.cluster.delete(more(), site.namespace)
        await site.until_served("more.test", status=404)


async def move_backends(site: Site) -> None:
    with reported("endpoints added"):
        await site.apply(backend("echo", 3))
        await until_answered_by(site, "web.test", await site.cluster.wait_pods(site.namespace, "app=echo", 3))
    with reported("endpoints removed"):
        await site.apply(backend("echo", 1))
        await until_answered_by(site, "web.test", await site.cluster.wait_pods(site.namespace, "app=echo", 1))
    await site.apply(backend("other", 1))
    other = await site.cluster.wait_pods(site.namespace, "app=other", 1)
    with reported("Service moved to other Pods"):
        await site.apply(service("echo", selector={"app": "other"}))
        await until_answered_by(site, "web.test", other)


async def change_configuration(site: Site) -> None:
    rule = {"template": "http-response set-header X-Story second\n"}
    await site.apply(site.config_map(templateSnippets={"frontend-rules-story": rule}))

    async def is_seen() -> bool:
        answers = [await answer_of(site, "web.test") for _ in range(4)]
        return all(one is not None and one.headers.get("x-story") == "second" for one in answers)

    await until(is_seen)


async def scale_instances(site: Site, count: int) -> None:
    await site.apply(site.haproxy(count))
    await site.cluster.wait_pods(site.namespace, "app=haproxy", count)


async def lose_leader(site: Site) -> None:
    leader = await site.leader()
    await site.cluster.wait_pods(site.namespace, "app=controller", 2)
    began = trio.current_time()
    await site.cluster.signal_container(site.namespace, leader.partition("_")[0], signal.SIGKILL)
    await site.apply(site.ingress("after-kill", "after-kill.test"))
    served = await site.until_served("after-kill.test")

    assert await site.leader() != leader
    print(f"leader killed: {served - began:.2f} s")  # noqa: T201


async def is_in(holders: list[str], wanted: str) -> bool:
    return wanted in holders


async def stop_leader(site: Site) -> None:
    await site.cluster.wait_pods(site.namespace, "app=controller", 2)
    leader = await site.leader()
    async with site.followed_holders() as holders:
        began = trio.current_time()
        await site.cluster.api.delete(site.path("pods", leader.partition("_")[0]))
        winner = await site.leader(other_than=leader)
        won = trio.current_time()
        await until(partial(is_in, holders, winner))
    await site.apply(site.ingress("after-stop", "after-stop.test"))
    served = await site.until_served("after-stop.test")

    print(f"leader stopped: lease {won - began:.2f} s, traffic {served - began:.2f} s")  # noqa: T201
    assert holders == [leader, "", winner], "the lease is given back, so no replica waits until it expires"
