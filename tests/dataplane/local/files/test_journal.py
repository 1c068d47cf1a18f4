"""Whatever a crash leaves of a journal, it holds what was settled before."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.local.files.journal import PatchJournal


@given(st.lists(st.tuples(st.binary(max_size=20), st.sampled_from(["keep", "drop", "crash"])), max_size=6), st.data())
def test_a_journal_cut_off_anywhere_holds_what_was_settled_before(
    history: list[tuple[bytes, str]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        journal = PatchJournal(path)
        known: list[tuple[int, tuple[bytes, ...]]] = [(0, ())]
        for entry, end in history:
            journal.append(entry)
            if end == "crash":
                journal.close()
                journal = PatchJournal(path)
                continue
            journal.settle(kept=end == "keep")
            kept = known[-1][1] + ((entry,) if end == "keep" else ())
            known.append((path.stat().st_size, kept))
        journal.close()
        assert PatchJournal(path).read().kept == known[-1][1]
        size = path.stat().st_size if path.exists() else 0
        cut = data.draw(st.integers(0, size))
        if path.exists():
            os.truncate(path, cut)
        expected = max((one for one in known if one[0] <= cut), key=lambda one: one[0])[1]
        assert PatchJournal(path).read().kept == expected
        again = PatchJournal(path)
        again.append(b"new")
        again.settle(kept=True)
        again.close()
        assert PatchJournal(path).read() == ((*expected, b"new"), None)
