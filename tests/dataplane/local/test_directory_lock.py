"""Lock of a directory: it never writes to a file elsewhere."""

from pathlib import Path

import pytest

from haptic_trio.dataplane.local.directory_lock import lock_directory


async def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    other, directory = tmp_path / "other", tmp_path / "state"
    other.write_text("content")
    directory.mkdir()
    (directory / "lock").symlink_to(other)

    with pytest.raises(OSError, match="it is a symbolic link"):
        async with lock_directory(directory):
            pass

    assert other.read_text() == "content"
