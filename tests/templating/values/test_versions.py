"""Snapshots stay as they are, whatever is written afterwards."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from haptic_trio.templating.values.versions import Snapshot, Versioned

KEYS = st.sampled_from("abcd")


class VersionedMachine(RuleBasedStateMachine):
    """A versioned mapping against copies of a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.versioned: Versioned[str, int] = Versioned()
        self.model: dict[str, int] = {}
        self.kept: list[tuple[Snapshot[str, int], dict[str, int]]] = []

    @rule(key=KEYS, value=st.integers())
    def put(self, key: str, value: int) -> None:
        self.versioned.put(key, value)
        self.model[key] = value

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        self.versioned.remove(key)
        self.model.pop(key, None)

    @rule()
    def snapshot(self) -> None:
        self.kept.append((self.versioned.snapshot(), dict(self.model)))

    @rule()
    def forget(self) -> None:
        del self.kept[:1]

    @invariant()
    def each_is_as_it_was(self) -> None:
        assert len(self.versioned) == len(self.model)
        assert all(self.versioned.get(key) == self.model.get(key) for key in "abcd")
        for snapshot, model in self.kept:
            assert dict(snapshot) == model
            assert len(snapshot) == len(model)
            assert ("a" in snapshot) == ("a" in model)


TestVersionedMachine = VersionedMachine.TestCase
