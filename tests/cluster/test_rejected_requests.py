"""The API server rejects a token, or a kind: what is known goes on being served, and nothing less is deployed."""

import signal
from pathlib import Path

import pytest
import trio

from haptic_trio.k8s.resource import Resource
from tests.cluster.workloads.client import Cluster
from tests.cluster.workloads.controllers import RULES, Site, installed
from tests.cluster.workloads.manifests import deployment, secret, service
from tests.cluster.workloads.traffic import flowing

pytestmark = pytest.mark.cluster
LIMIT = 180.0
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"


class Tokens:
    """The token of a site's controllers, which a test replaces and revokes."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    async def use(self, name: str) -> None:
        """Give the controllers a new token, which lasts until *name* is revoked."""
        (anchor,) = await self._cluster.apply([secret(name)], self._namespace)
        token = await self._cluster.token_of(self._namespace, "default", bound_to=anchor)
        authority = self._cluster.state.certificates.authority.read_text()
        stored = secret("controller-token", token=token, namespace=self._namespace, **{"ca.crt": authority})
        await self._cluster.apply([stored], self._namespace)

    async def revoke(self, name: str) -> None:
        """Let the token that was given as *name* be good no more, at once."""
        await self._cluster.delete(secret(name), self._namespace)
        # It knows for ten seconds what it has once accepted.
        await self._cluster.restart_apiserver()


async def take_token(site: Site) -> None:
    site.controller_volumes = [
        {"name": "token", "mountPath": TOKEN_FOLDER, "secret": {"secretName": "controller-token"}}
    ]


async def test_rotated_token_is_taken_and_one_that_comes_too_late_costs_no_route(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    tokens = Tokens(cluster, namespace)
    with trio.fail_after(LIMIT):
        await tokens.use("first")
        async with (
            installed(cluster, namespace, tmp_path, prepare=take_token, instances=2) as site,
            flowing(site.traffic("web.test")),
        ):
            await tokens.use("second")
            await tokens.revoke("first")
            await site.apply(site.ingress("more", "more.test"))
            await site.until_served("more.test")

            await tokens.revoke("second")
            for pod in await site.pods_of_controllers():
                await site.until_reported(pod, "nauthorized")
            await site.apply(site.ingress("late", "late.test"))
            assert await site.ask("late.test") == 404
            await tokens.use("third")
            await site.until_served("late.test")


def without_endpoints() -> list[Resource]:
    return [rule for rule in RULES if rule["resources"] != ["endpointslices"]]


async def test_forbidden_kind_keeps_its_objects_and_a_new_controller_deploys_nothing(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path, instances=2) as site, flowing(site.traffic("web.test")):
            await site.grant(without_endpoints())
            await cluster.restart_apiserver()
            pods = await site.pods_of_controllers()
            for pod in pods:
                await site.until_reported(pod, "endpointslices", "forbidden")
            await site.apply(site.ingress("more", "more.test"))
            await site.until_served("more.test")

            for pod in pods:
                await cluster.signal_container(namespace, pod, signal.SIGKILL)
            for pod in pods:
                await site.until_restarted(pod)
                await site.until_reported(pod, "endpointslices", "forbidden")
            await site.apply(
                deployment("other", 1), service("other"), site.ingress("late", "late.test", backend="other")
            )
            await cluster.wait_pods(namespace, "app=other", 1)
            assert await site.ask("late.test") == 404
            await site.grant(RULES)
            await site.until_served("late.test")
