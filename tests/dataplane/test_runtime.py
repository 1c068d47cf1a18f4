"""How runtime commands are cut into batches."""

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.runtime import make_batches
from haptic_trio.haproxy.commands import MAX_BATCH, MAX_COMMAND_BYTES
from haptic_trio.haproxy.operations import ReplaceMap

COMMANDS = st.lists(st.integers(1, MAX_COMMAND_BYTES).map(lambda size: "x" * size) | st.just(ReplaceMap("m", ())))


@given(COMMANDS | st.lists(st.just("short"), max_size=3 * MAX_BATCH))
def test_batches_keep_the_order_and_the_limits(commands: list[str | ReplaceMap]) -> None:
    batches = list(make_batches(commands))
    assert [one for batch in batches for one in ([batch] if isinstance(batch, ReplaceMap) else batch)] == commands
    for batch in batches:
        if not isinstance(batch, ReplaceMap):
            assert 0 < len(batch) <= MAX_BATCH
            assert len(batch) == 1 or sum(len(command) + 1 for command in batch) <= MAX_COMMAND_BYTES


def test_batches_are_as_large_as_they_may_be() -> None:
    assert len(list(make_batches(["set server app/one weight 5"] * (10 * MAX_BATCH)))) == 10
