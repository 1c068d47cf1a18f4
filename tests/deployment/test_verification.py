"""An endpoint is verified once in an interval, and at the begin of each term."""

from haptic_trio.deployment.verification import Verification
from tests.support.components.endpoints import MemoryEndpoint

INTERVAL = 60.0


def test_endpoint_is_due_once_in_an_interval() -> None:
    verification, endpoint = Verification(), MemoryEndpoint("e1")
    assert verification.is_due(endpoint, 0, INTERVAL)
    verification.record(endpoint, 0)
    assert not verification.is_due(endpoint, INTERVAL - 1, INTERVAL)
    assert verification.is_due(endpoint, INTERVAL, INTERVAL)


def test_renewed_and_forgotten_endpoints_are_due() -> None:
    verification, endpoint = Verification(), MemoryEndpoint("e1")
    verification.record(endpoint, 0)
    assert verification.is_due(MemoryEndpoint("e1"), 1, INTERVAL)
    verification.forget("e1")
    assert verification.is_due(endpoint, 1, INTERVAL)


def test_another_term_verifies_again_and_another_iteration_does_not() -> None:
    verification, endpoint = Verification(), MemoryEndpoint("e1")
    verification.begin(1)
    verification.record(endpoint, 0)
    verification.begin(1)
    assert not verification.is_due(endpoint, 1, INTERVAL)
    verification.begin(2)
    assert verification.is_due(endpoint, 1, INTERVAL)
