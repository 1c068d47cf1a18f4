"""An agent accepts requests from clients with an allowed name, at a limited rate."""

import pytest

from haptic_trio.dataplane.agent.limits import RequestRejectedError, TokenBucket, check_client
from haptic_trio.dataplane.agent.messages import ErrorCode
from haptic_trio.dataplane.agent.tls import Client

CLIENT = Client(names=frozenset({"controller"}), expires=100.0, trust=2)


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    now = [0.0]
    bucket = TokenBucket(2.0, 3.0, clock=lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now[0] = 0.4
    assert not bucket.take()
    now[0] = 0.5
    assert bucket.take()
    now[0] = 100.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("allowed", [frozenset(), frozenset({"controller", "other"})])
def test_a_client_with_an_allowed_name_may_ask(allowed: frozenset[str]) -> None:
    check_client(CLIENT, allowed=allowed, trust=2, now=99.0)


@pytest.mark.parametrize(
    ("client", "trust", "now", "code"),
    [
        (None, 2, 0.0, ErrorCode.CLIENT_NOT_ALLOWED),
        (Client(names=frozenset({"mallory"}), expires=100.0, trust=2), 2, 0.0, ErrorCode.CLIENT_NOT_ALLOWED),
        (CLIENT, 2, 100.0, ErrorCode.TRUST_CHANGED),
        (CLIENT, 3, 0.0, ErrorCode.TRUST_CHANGED),
    ],
)
def test_others_may_not(client: Client | None, trust: int, now: float, code: ErrorCode) -> None:
    with pytest.raises(RequestRejectedError) as rejection:
        check_client(client, allowed=frozenset({"controller"}), trust=trust, now=now)
    assert rejection.value.answer.code is code
