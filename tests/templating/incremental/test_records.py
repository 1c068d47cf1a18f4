"""If several units register one path, the file of the first unit counts, at a nearly linear cost."""

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.chunked import Paged
from haptic_trio.templating.incremental.records import Claims, Unit
from haptic_trio.templating.values.paths import FileKind, RenderedFile
from haptic_trio.templating.values.subjects import RenderedText

PATH = "ssl/one.pem"


class Counted(tuple[int, ...]):
    """A position that counts comparisons."""

    __slots__ = ()
    comparisons = 0

    def __lt__(self, other: tuple[int, ...]) -> bool:
        Counted.comparisons += 1
        return tuple(self) < tuple(other)


def file_of(name: str) -> RenderedFile:
    """Return a file for `PATH` with the name *name*."""
    return RenderedFile(FileKind.MAP, name, PATH, RenderedText(Paged()))


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 20)), max_size=40))
def test_the_first_claim_of_another_unit_counts(changes: list[tuple[int, int]]) -> None:
    claims, units = Claims(), [Unit() for _ in range(8)]
    expected: dict[int, int] = {}
    for number, place in changes:
        if number in expected:
            assert claims.remove(units[number], PATH) == (expected.pop(number),)
        elif place not in expected.values():
            claims.add(units[number], (place,), file_of(str(number)))
            expected[number] = place

        first = min(expected, key=lambda one: expected[one], default=None)
        assert (PATH in claims) == bool(expected)
        assert claims.holder(PATH) is (None if first is None else units[first])
        for own in range(8):
            others = [one for one in expected if one != own and expected[one] < 10]
            found = claims.before(PATH, units[own], (10,))
            assert (found.name if found else None) == (
                str(min(others, key=lambda one: expected[one])) if others else None
            )


def test_twice_as_many_claims_of_one_path_cost_twice_as_much() -> None:
    def cost(size: int) -> int:
        claims, units, file = Claims(), [Unit() for _ in range(size)], file_of("one")
        Counted.comparisons = 0
        for number, unit in enumerate(units):
            claims.before(PATH, unit, Counted((1, number)))
            claims.add(unit, Counted((1, number)), file)
        for number, unit in enumerate(units):
            claims.remove(unit, PATH)
            claims.add(unit, Counted((1, number)), file)
        return Counted.comparisons

    assert 0 < cost(800) <= 2.5 * cost(400)
