"""The cost of the entries of a large route, counted in calls."""

from haptic_trio.gateway.routes.kinds import HTTP_ROUTE
from haptic_trio.gateway.routes.matches import PREFIX
from haptic_trio.gateway.routes.routing import entries
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, route, service, stores_of
from tests.support.work import Work


def cost(hostnames: int, conditions: int, backends: int) -> int:
    headers = [{"name": f"x-{number}", "value": "v w"} for number in range(conditions)]
    matches = [{"path": {"value": f"/{number}"}, "headers": headers} for number in range(8)]
    to = [{"name": "app", "port": 80, "weight": number + 1} for number in range(backends)]
    names = [f"h{number}.example.com" for number in range(hostnames)]
    one = route("r", {"matches": matches, "backendRefs": to}, hostnames=names)
    stores = stores_of(gateway_class(), service(), gateway(), one)
    with Work() as work:
        found = list(entries(one, HTTP_ROUTE, PREFIX, stores, CONTROLLER))
    assert len(found) == hostnames * len(matches)
    return work.calls


def test_conditions_and_backends_cost_the_same_for_any_number_of_host_names() -> None:
    def for_each_host(conditions: int, backends: int) -> float:
        few = cost(8, conditions, backends)
        return (cost(16, conditions, backends) - few) / 8

    assert for_each_host(16, 16) <= 1.1 * for_each_host(1, 2)
