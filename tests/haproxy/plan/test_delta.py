"""A delta leads from one generation to the other, on any side, and is no larger than what differs."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.chunked import Paged, Piece, Shelf
from haptic_trio.haproxy.config.parser import SectionCache, parse_config
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.delta import (
    Delta,
    DeltaError,
    TextSplice,
    apply_delta,
    decode_delta,
    encode_delta,
    make_delta,
)

HEADS = (
    "global\n  maxconn 1\n",
    "defaults d%d\n  mode http\n",
    "backend b%d\n  server s 1.1.1.1:1\n",
    "frontend f%d\n",
)
sections = st.lists(
    st.tuples(st.sampled_from(HEADS), st.integers(0, 9), st.sampled_from(["", "# é\n", "\n\n"])),
    max_size=12,
    unique_by=lambda one: one[:2],
)
lines = st.lists(st.sampled_from(["a 1", "b 2", "c 3", "", "# x", "é 1", "\udcff 2"]), max_size=200)
contents = st.tuples(sections, lines, st.booleans(), st.sampled_from(["", "# head\n", "# other\n"]))


def build(content: tuple[list[tuple[str, int, str]], list[str], bool, str]) -> Generation:
    parts, entries, ended, head = content
    text = "".join((one % number if "%" in one else one) + note for one, number, note in parts)
    files = [
        make_file(FileKind.MAP, "m/p.map", "\n".join(entries) + "\n" * ended),
        make_file(FileKind.CERT, f"s/{len(entries) % 3}.pem", f"key {len(parts) % 2}", secret=True),
        make_file(FileKind.FILE, "g/x", "same"),
    ]
    return make_generation(parse_config(head + text), files)


@given(contents, contents)
def test_a_delta_leads_from_one_generation_to_the_other(one: object, other: object) -> None:
    before, after = build(one), build(other)  # type: ignore[arg-type]  # as the strategy makes them
    delta = decode_delta(encode_delta(make_delta(before, after)))
    found = apply_delta(before, delta)
    assert (found.id, found.text) == (after.id, after.text)
    assert found == after
    assert {path: file.content for path, file in found.files.items()} == {
        path: file.content for path, file in after.files.items()
    }
    assert found.files["g/x"] is before.files["g/x"]


def route(number: int, host: int = 1) -> Piece:
    return Piece(f"backend b{number}\n  server s 10.0.0.{host}:80\n")


def test_a_delta_has_the_size_of_the_change_and_shares_the_rest() -> None:
    config = Shelf((n, route(n)) for n in range(5000))
    hosts = Shelf((n, Piece(f"h{n} b{n}\n")) for n in range(5000))
    cache = SectionCache()

    def current() -> Generation:
        files = [make_file(FileKind.MAP, "m/h.map", hosts.paged())]
        return make_generation(parse_config(config.paged(), cache=cache), files)

    before = current()
    config.put(2000, route(2000, 2))
    config.put(6000, route(6000))
    config.remove(4000)
    hosts.put(6000, Piece("h6000 b6000\n"))
    hosts.remove(100)
    after = current()
    data = encode_delta(make_delta(before, after))
    assert len(data) < 500
    # The other side has the same content in other pages.
    elsewhere = make_generation(
        parse_config(before.text), [make_file(FileKind.MAP, "m/h.map", before.files["m/h.map"].content)]
    )
    found = apply_delta(elsewhere, decode_delta(data))
    assert found.id == after.id
    mine = {id(page) for page in elsewhere.config.sections.pages}
    assert sum(id(page) not in mine for page in found.config.sections.pages) <= 3


def test_generations_that_share_nothing_give_the_same_small_delta() -> None:
    text = "".join(route(n).text for n in range(2000))
    before = make_generation(parse_config(text), [])
    after = make_generation(parse_config(text.replace("b1000\n", "b1000\n  mode http\n")), [])
    delta = make_delta(before, after)
    assert [(one.at, one.removed, len(one.added)) for one in delta.sections] == [(1000, 1, 1)]


A = build(([("backend b%d\n  server s 1.1.1.1:1\n", 1, ""), ("frontend f%d\n", 1, "")], ["a 1"], True, ""))
B = build(([("backend b%d\n  server s 1.1.1.1:1\n", 2, "")], ["a 2", "b 1"], True, "# head\n"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": "0" * 40},
        {"id": "0" * 40},
        {"sections": ()},
        {"sections": (TextSplice(5, 1),)},
        {"sections": (TextSplice(0, 2, (b"backend a\nbackend b\n",)),)},
        {"sections": (TextSplice(0, 2, (b"  mode http\n",)),)},
        {"sections": (TextSplice(1, 1), TextSplice(0, 1))},
        {"removed": ("g/x",)},
        {"files": ()},
    ],
)
def test_a_delta_that_does_not_fit_is_rejected(wrong: dict[str, object]) -> None:
    delta = make_delta(A, B)
    assert apply_delta(A, delta) == B
    with pytest.raises(DeltaError):
        apply_delta(A, msgspec.structs.replace(delta, **wrong))


def test_lines_of_a_missing_file_are_rejected() -> None:
    delta = make_delta(A, B)
    other = Delta("", B.id, delta.sections, delta.files, delta.removed, delta.head)
    bare = make_generation(A.config, [])
    with pytest.raises(DeltaError):
        apply_delta(bare, msgspec.structs.replace(other, base=bare.id))


@pytest.mark.parametrize("data", [b"", b"\x90", b"\xff", encode_delta(make_delta(A, B))[:-3]])
def test_bytes_that_are_not_a_delta_are_rejected(data: bytes) -> None:
    with pytest.raises(DeltaError):
        decode_delta(data)


def test_no_content_is_shown() -> None:
    secret = make_file(FileKind.CERT, "s/a.pem", "PRIVATE", secret=True)
    delta = make_delta(make_generation(A.config, []), make_generation(A.config, [secret]))
    assert "PRIVATE" not in repr(delta) + repr(delta.files)
    assert isinstance(secret, AuxFile)


def test_a_file_becomes_secret_by_a_delta() -> None:
    public, secret = (make_file(FileKind.MAP, "m", Paged.of([Piece("a 1\n")]), secret=flag) for flag in (False, True))
    before, after = (make_generation(A.config, [file]) for file in (public, secret))
    assert apply_delta(before, make_delta(before, after)).files["m"].secret
