"""A replaced HAProxy binary changes the basis of local instances; a missing binary does not."""

from functools import partial
from pathlib import Path

import trio

from haptic_trio.channels import Latest
from haptic_trio.stages.fleets.local import watch_binary


async def test_another_binary_is_noticed_and_a_missing_one_is_not_news(nursery: trio.Nursery, tmp_path: Path) -> None:
    binary, basis = tmp_path / "haproxy", Latest[str]()
    binary.write_text("1")
    nursery.start_soon(partial(watch_binary, binary, basis, interval=0.01))
    with trio.fail_after(10):
        seen, first = await basis.wait_newer(0)
        binary.unlink()
        # Several looks later it is still the one that was there.
        with trio.move_on_after(0.1):
            await basis.wait_newer(seen)
            raise AssertionError("a binary that is missing is no other one")
        binary.write_text("2")
        _, second = await basis.wait_newer(seen)
    assert first != second
    nursery.cancel_scope.cancel()
