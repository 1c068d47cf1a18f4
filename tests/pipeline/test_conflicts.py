"""Owners get a warning about entries and certificates without effect, because those of others come first."""

from typing import Any

import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.chunked import Paged, Piece, Shelf
from haptic_trio.haproxy.model import AuxFile, FileKind, Files, make_file
from haptic_trio.pipeline.conflicts import MOST_WARNINGS, Conflicts
from haptic_trio.templating.values.subjects import Origin, RenderedText, Subject

PATH = "maps/host.map"


def piece(name: str, text: str, *, kind: str = "Ingress", version: str = "1") -> Piece:
    return Piece(text, Origin("f", Subject(kind, "default", name, version), "t", 1))


def reported(*pieces: Piece, conflicts: Conflicts | None = None, path: str = PATH, secret: bool = False) -> list[str]:
    text = RenderedText(Paged.of(pieces))
    files = Files.of([make_file(FileKind.MAP, path, text.pieces, secret=secret)])
    found = (conflicts or Conflicts(lambda _path, _origin: False)).take(files, {path: text})
    return [f"{one.subject.name}: {one.message}" for one in found]


def test_the_first_entry_of_a_key_counts_and_the_owner_of_another_one_gets_a_warning() -> None:
    assert reported(piece("a", "x 1\ny 2\n"), piece("b", "z 1\nx 2\n"), piece("c", "x 1\n")) == [
        f"b: the entry x of {PATH} has no effect, because the entry of Ingress default/a comes first"
    ]


def test_entries_without_a_loser_give_no_warning() -> None:
    assert reported(piece("a", "x 1\n"), piece("b", "x 1\n")) == []
    assert reported(piece("a", "x 1\nx 2\n")) == []
    assert reported(piece("a", "x 1\n"), Piece("x 2\n")) == []
    assert reported(piece("a", "# x 1\n"), piece("b", "# x 2\n")) == []


def test_templates_may_have_an_entry_themselves() -> None:
    (said,) = reported(Piece("x 1\n"), piece("a", "x 2\n"))

    assert said.endswith("because the entry of the templates themselves comes first")


def test_a_key_that_may_be_a_secret_is_not_named() -> None:
    for secretive in ("a", "b"):

        def is_secret(_path: str, origin: Origin | None, who: str = secretive) -> bool:
            return origin is not None and origin.subject.name == who

        conflicts = Conflicts(is_secret)
        assert reported(piece("a", "token 1\n"), piece("b", "token 2\n"), conflicts=conflicts) == [
            f"b: an entry of {PATH} has no effect, because the entry of Ingress default/a comes first"
        ]
    assert reported(piece("a", "token 1\n"), piece("b", "token 2\n"), secret=True) == []


def test_an_owner_of_many_lost_entries_gets_some_warnings() -> None:
    text = "".join(f"k{number} VALUE\n" for number in range(500))

    assert (
        len(reported(piece("a", text.replace("VALUE", "1")), piece("b", text.replace("VALUE", "2")))) == MOST_WARNINGS
    )


def test_nothing_changes_hands_while_nothing_changes() -> None:
    conflicts = Conflicts(lambda _path, _origin: False)
    text = RenderedText(Paged.of([piece("a", "x 1\n"), piece("b", "x 2\n")]))
    files = Files.of([make_file(FileKind.MAP, PATH, text.pieces, secret=False)])
    first = conflicts.take(files, {PATH: text})
    again = RenderedText(Paged.of([piece("a", "x 1\n"), piece("b", "x 2\n", version="2")]))
    more = Files.of([make_file(FileKind.MAP, PATH, again.pieces, secret=False)])

    assert len(first) == 1
    assert conflicts.take(files, {PATH: text}) is first
    assert conflicts.take(more, {PATH: again}) is first


def expected(entries: dict[str, list[tuple[str, str]]]) -> set[tuple[str, str]]:
    """Return who loses which key, said in the plainest way."""
    found, first = set(), dict[str, tuple[str, str]]()
    for name in sorted(entries):
        for key, value in entries[name]:
            holder, held = first.setdefault(key, (name, value))
            if holder != name and held != value:
                found.add((name, key))
    return found


ENTRIES = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("12")), max_size=4)
CHANGES = st.lists(st.tuples(st.integers(0, 200), ENTRIES), min_size=1, max_size=25)


@settings(max_examples=60, deadline=None)
@given(CHANGES)
def test_change_after_change_it_is_what_the_whole_file_says(changes: Any) -> None:
    shelf: Shelf[str, Piece] = Shelf()
    entries: dict[str, list[tuple[str, str]]] = {}
    conflicts = Conflicts(lambda _path, _origin: False)
    for number, own in changes:
        name = f"{number:03}"
        entries[name] = own
        shelf.put(name, piece(name, "".join(f"{key} {value}\n" for key, value in own)))
        text = RenderedText(shelf.paged())
        files = Files.of([make_file(FileKind.MAP, PATH, text.pieces, secret=False)])
        found = conflicts.take(files, {PATH: text})

        assert {(one.subject.name, one.message.split()[2]) for one in found} == expected(entries)


def test_change_of_one_entry_reads_its_page_alone() -> None:
    shelf: Shelf[int, Piece] = Shelf()
    for number in range(5_000):
        # Some keys are there twice: they cost nothing more while they stay as they are.
        shelf.put(number, piece(f"web{number}", f"{number % 4_900} {number}\n"))
    conflicts = Conflicts(lambda _path, _origin: False)

    def take() -> int:
        text = RenderedText(shelf.paged())
        files = Files.of([make_file(FileKind.MAP, PATH, text.pieces, secret=False)])
        before = conflicts.pages_read
        assert len(conflicts.take(files, {PATH: text})) == 100
        return conflicts.pages_read - before

    assert take() == len(shelf.paged().pages)
    shelf.put(2_500, piece("web2500", "2500 other\n"))
    assert take() == 1
    shelf.put(2_500, piece("web2500", "2500 other\n", version="2"))
    shelf.put(10, piece("web10", "10 other\n"))
    assert take() == 2


def test_change_of_one_certificate_reads_the_lines_about_it_alone() -> None:
    authority = trustme.CA()

    def issue(name: str, host: str) -> AuxFile:
        issued = authority.issue_cert(host, key_type=trustme.KeyType.ECDSA)
        return make_file(FileKind.CERT, f"ssl/{name}.pem", issued.cert_chain_pems[0].bytes())

    first, other = issue("first", "a.example.com"), issue("other", "b.example.com")
    shelf: Shelf[int, Piece] = Shelf()
    for number in range(300):
        name = {0: "first", 299: "other"}.get(number, "else")
        shelf.put(number, piece(f"web{number}", f"ssl/{name}.pem\n" if name != "else" else f"ssl/{number}.pem\n"))
    text = RenderedText(shelf.paged())
    conflicts = Conflicts(lambda _path, _origin: False)

    def take() -> list[str]:
        crt_list = make_file(FileKind.CRT_LIST, "crt-lists/https.list", text.pieces)
        files = Files.of([crt_list, first, other])
        return [f"{one.subject.name}: {one.message}" for one in conflicts.take(files, {crt_list.path: text})]

    assert take() == []
    other = issue("other", "a.example.com")
    before = conflicts.pages_read
    assert take() == [
        (
            "web299: the certificate for a.example.com serves only clients that do not support the certificate of "
            "Ingress default/web0"
        )
    ]
    assert conflicts.pages_read - before == 1
    other = issue("other", "c.example.com")
    assert take() == []


def test_nothing_stays_of_a_file_that_is_gone() -> None:
    conflicts = Conflicts(lambda _path, _origin: False)
    assert len(reported(piece("a", "x 1\n"), piece("b", "x 2\n"), conflicts=conflicts)) == 1
    assert conflicts.take(Files.of([]), {}) == ()
