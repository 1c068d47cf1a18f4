from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.backoff import Backoff


def test_delays_double_up_to_the_limit_and_begin_again_after_a_success() -> None:
    backoff = Backoff(base=1, limit=5, jitter=lambda: 0)

    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1


@given(st.integers(0, 200), st.floats(0, 1, exclude_max=True))
def test_every_delay_is_within_half_of_its_bound(failures: int, jitter: float) -> None:
    backoff = Backoff(base=0.2, limit=15, jitter=lambda: jitter)
    for _ in range(failures):
        backoff.next()

    assert 0.1 <= backoff.next() <= 15
