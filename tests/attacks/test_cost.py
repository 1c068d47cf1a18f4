"""The cost of a Gateway API object, and of long lists in an Ingress, grows no faster than their size.

`tests/libraries/rendering/test_linear_cost.py` covers the paths, hosts and annotations of Ingresses.
"""

from collections.abc import Callable
from typing import Final

import pytest

from haptic_trio.k8s.resource import Resource
from tests.attacks.inputs.growing import OBJECTS, POOL, POOLED, Growth

SIZES: Final = (20, 40, 60)


@pytest.fixture(scope="module")
def growth() -> Growth:
    return Growth()


@pytest.fixture(scope="module")
def pooled() -> Growth:
    return Growth(gatewayAddresses=list(POOL), gatewayAddressesPerNamespace=len(POOL))


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTS)
def test_cost_is_linear_in_the_size_of_the_object(growth: Growth, name: str) -> None:
    assert_linear(growth, OBJECTS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLED)
def test_cost_is_linear_in_the_size_of_the_object_with_a_pool_of_addresses(pooled: Growth, name: str) -> None:
    assert_linear(pooled, POOLED[name])


def assert_linear(growth: Growth, objects: Callable[[int], list[Resource]]) -> None:
    # What is compiled or remembered once is so before.
    growth.cost(objects(SIZES[0]))
    costs = [growth.cost(objects(size)) for size in SIZES]

    # What is linear grows by as much from each size to the next; the allowance is for what is sorted.
    assert costs[2] - 2 * costs[1] + costs[0] <= 0.02 * costs[1], costs
