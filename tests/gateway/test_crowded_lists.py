"""Very many matches of one namespace for a host and path leave the routes of another namespace served."""

from pathlib import Path

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.crowd import HOST, crowd, open_gateway, shop
from tests.gateway.objects import service
from tests.gateway.serving import endpoints, served
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import ask, serving


def app(port: int, namespace: str) -> list[Resource]:
    """Return the Service `app` of *namespace*, which leads to *port* of this machine."""
    slices = endpoints("app", ("", port))
    slices["metadata"]["namespace"] = namespace
    return [service(namespace=namespace), slices]


@pytest.mark.haproxy
@pytest.mark.parametrize("day", [1, 28], ids=["older", "younger"])
def test_requests_of_the_other_namespace_are_answered(tmp_path: Path, day: int) -> None:
    port = free_port()

    def answering(version: str) -> str:
        return ask(port, HOST, "/cart", headers={"x-version": version}).body.partition("\n")[0]

    with serving("victim", "attacker") as running:
        services = [*app(running["victim"], "victim"), *app(running["attacker"], "attacker")]
        with served(tmp_path, port, open_gateway(port), *services, shop("victim"), *crowd(day)):
            assert answering("other") == "victim"
            assert answering("beta") == "victim"
            assert answering(f"{0:064}") == "attacker"
