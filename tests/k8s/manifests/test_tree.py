from pathlib import Path

import trio

from haptic_trio.k8s.manifests.tree import TreeChange, find_unwatched, watch_tree


async def receive_until(changes: trio.MemoryReceiveChannel[TreeChange], path: Path) -> None:
    """Wait until *path* has been named."""
    with trio.fail_after(10):
        while True:
            change = await changes.receive()
            if change is not None and str(path) in change:
                return


async def test_it_reports_its_start_and_then_changes(tmp_path: Path, nursery: trio.Nursery) -> None:
    changes_in, changes_out = trio.open_memory_channel[TreeChange](0)
    nursery.start_soon(watch_tree, tmp_path, changes_in)

    with trio.fail_after(10):
        assert await changes_out.receive() is None
    (tmp_path / "a.yaml").write_text("")

    await receive_until(changes_out, tmp_path / "a.yaml")
    nursery.cancel_scope.cancel()


async def test_it_restarts_when_a_link_to_the_directory_is_switched(tmp_path: Path, nursery: trio.Nursery) -> None:
    for release in ("one", "two"):
        (tmp_path / release).mkdir()
    root = tmp_path / "current"
    root.symlink_to("one")
    changes_in, changes_out = trio.open_memory_channel[TreeChange](0)
    nursery.start_soon(watch_tree, root, changes_in)
    with trio.fail_after(10):
        assert await changes_out.receive() is None

        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(root)
        # Once for the end of the old one, once for the beginning of the new one.
        assert await changes_out.receive() is None
        assert await changes_out.receive() is None
    (tmp_path / "two/a.yaml").write_text("")

    await receive_until(changes_out, root / "a.yaml")
    nursery.cancel_scope.cancel()


async def test_it_waits_for_a_directory_that_is_not_there(tmp_path: Path, nursery: trio.Nursery) -> None:
    root = tmp_path / "late"
    changes_in, changes_out = trio.open_memory_channel[TreeChange](0)
    nursery.start_soon(watch_tree, root, changes_in)
    await trio.testing.wait_all_tasks_blocked()

    root.mkdir()

    with trio.fail_after(10):
        assert await changes_out.receive() is None
    nursery.cancel_scope.cancel()


async def test_it_ends_when_its_reader_is_gone(tmp_path: Path) -> None:
    changes_in, changes_out = trio.open_memory_channel[TreeChange](0)
    changes_out.close()

    with trio.fail_after(10):
        await watch_tree(tmp_path, changes_in)


async def test_cancelling_it_closes_its_end_of_the_channel(tmp_path: Path) -> None:
    changes_in, changes_out = trio.open_memory_channel[TreeChange](1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_tree, tmp_path, changes_in)
        with trio.fail_after(10):
            await changes_out.receive()
        nursery.cancel_scope.cancel()

    assert changes_out.statistics().open_send_channels == 0


async def test_directories_without_a_kernel_watch_are_found(tmp_path: Path, nursery: trio.Nursery) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    (root / "sub").mkdir(parents=True)
    other.mkdir()
    changes_in, changes_out = trio.open_memory_channel[TreeChange](0)
    nursery.start_soon(watch_tree, root, changes_in)
    with trio.fail_after(10):
        assert await changes_out.receive() is None
    assert find_unwatched([str(root), str(root / "sub"), str(other)]) == [str(other)]
    # Without a watch for the first one, the numbers may be those of another file system.
    assert find_unwatched([str(other), str(root)]) == []
    nursery.cancel_scope.cancel()
