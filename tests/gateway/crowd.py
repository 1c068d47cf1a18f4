"""Routes of two namespaces for one host and path: one of a victim, and very many of an attacker."""

from typing import Any

from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, route, rule

HOST = "shop.test"


def open_gateway(port: int = 80) -> Resource:
    """Return the Gateway `gw` with a listener for routes of all namespaces."""
    everybody = {"namespaces": {"from": "All"}}
    return gateway("gw", {"name": "http", "port": port, "protocol": "HTTP", "allowedRoutes": everybody})


def shop(namespace: str) -> Resource:
    """Return a route of *namespace* for `/cart`: a rule for the version `beta`, and a rule for other requests."""
    return _shared("shop", conditional("beta"), rule("/cart"), namespace=namespace, day=14)


def crowd(day: int, count: int = 400) -> list[Resource]:
    """Return *count* routes of the namespace `attacker` for `/cart`, each for another version; created on *day*."""
    return [
        _shared(f"r{number}", conditional(f"{number:064}"), namespace="attacker", day=day) for number in range(count)
    ]


def conditional(value: str) -> dict[str, Any]:
    """Return a rule for `/cart` and requests with the header `x-version` of *value*."""
    headers = [{"name": "x-version", "value": value}]
    return rule(matches=[{"path": {"type": "PathPrefix", "value": "/cart"}, "headers": headers}])


def _shared(name: str, *rules: dict[str, Any], namespace: str, day: int) -> Resource:
    parents, created = [{"name": "gw", "namespace": "web"}], f"2026-01-{day:02}T00:00:00Z"
    return route(name, *rules, hostnames=[HOST], namespace=namespace, created=created, parents=parents)
