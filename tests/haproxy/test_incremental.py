"""Whatever is shared between two generations, they are parsed, compared and planned as if nothing were."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.chunked import PAGE_SIZE, Page, Paged, Piece, Shelf
from haptic_trio.haproxy.config.parser import ConfigSyntaxError, SectionCache, parse_config
from haptic_trio.haproxy.model import Config, FileKind, Files, Generation, make_file, make_files, make_generation
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.diff import diff_configs, diff_whole
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.plan.plan import make_plan

PIECES = (
    *("global\n", "  maxconn 1\n", "  maxconn 2\n", "# note\n", "\n", "   "),
    *("defaults\n  mode http\n", "defaults d\n  mode http\n", "defaults e from d\n  mode tcp\n", "userlist u\n"),
    *("backend a from d\n", "backend a\n", "backend b from d\n", "listen a\n", "backend c\n  server s 1.1.1.1:1\n"),
    *("  server s 10.0.0.1:80\n", "  server s 10.0.0.2:80 weight 7\n", "  server t 10.0.0.3:80\n", "  mode", " http\n"),
    *("frontend f\n  bind :80 ssl crt-list l.txt\n", "frontend f\n  use_backend %[path,map(m/p.map)]\n"),
    *(
        ".if defined(X)\n",
        ".endif\n",
        ".else\n",
        ".notice x\n",
        "'back'end q\n",
        "backend unended",
        "  mode nonsense\n",
    ),
)
CAPABLE = capabilities_of((3, 4))

pieces = st.lists(st.sampled_from(PIECES), max_size=14)
edits = st.lists(st.tuples(st.integers(0, 13), st.sampled_from((*PIECES, ""))), min_size=1, max_size=6)


def outcome(text: str | Paged[Piece], cache: SectionCache | None = None) -> object:
    """Return the model or the problems."""
    try:
        config = parse_config(text, cache=cache)
    except ConfigSyntaxError as exc:
        return exc.problems
    return config, config.text, config.seal, config.conditional, config.branched, list(config.first_lines())


def in_pages(texts: list[Piece], size: int) -> Paged[Piece]:
    return Paged(Page(tuple(texts[start : start + size])) for start in range(0, len(texts), size))


@given(pieces, st.lists(edits, max_size=4), st.integers(1, 4))
def test_parsing_in_pages_gives_the_result_of_the_whole_text(
    start: list[str], history: list[list[tuple[int, str]]], size: int
) -> None:
    cache = SectionCache()
    held = [Piece(text) for text in start]
    pages: dict[tuple[int, ...], Page[Piece]] = {}
    for changes in [[], *history]:
        for place, text in changes:
            held[place : place + 1] = [Piece(text)] if text else []
        # Pages of the same pieces are the same pages, as a shelf would have it.
        paged = Paged(pages.setdefault(tuple(map(id, page.items)), page) for page in in_pages(held, size).pages)
        assert outcome(paged, cache) == outcome("".join(piece.text for piece in held))


def test_one_page_twice_is_read_at_both_places() -> None:
    page = Page((Piece("  maxconn 1\n"),))
    paged = Paged([Page((Piece("global\n"),)), page, Page((Piece("global\n"),)), page])
    config = parse_config(paged, cache=SectionCache())
    assert [len(section.directives) for section in config.sections] == [1, 1]


def test_only_the_piece_that_changed_is_parsed_again() -> None:
    shelf = Shelf((n, Piece(f"backend b{n}\n")) for n in range(1000))
    cache = SectionCache()
    before = parse_config(shelf.paged(), cache=cache)
    assert cache.misses == 1000
    shelf.put(500, Piece("backend b500\n  mode http\n"))
    after = parse_config(shelf.paged(), cache=cache)
    assert cache.misses == 1001
    shared = {id(section) for section in before.sections} & {id(section) for section in after.sections}
    assert len(shared) == 999
    assert len({id(page) for page in before.sections.pages} - {id(page) for page in after.sections.pages}) == 1


def test_a_name_repeated_between_pages_is_rejected_until_one_changes() -> None:
    shelf = Shelf((n, Piece(f"backend b{n}\n")) for n in range(300))
    cache = SectionCache()
    parse_config(shelf.paged(), cache=cache)
    for _ in range(2):
        shelf.put(299, Piece("backend b0\n"))
        found = outcome(shelf.paged(), cache)
        assert isinstance(found, tuple)
        assert [(one.line, one.hint) for one in found] == [
            (300, "rename one of them: the first is the backend at line 1")
        ]
    shelf.put(299, Piece("backend b299\n"))
    assert len(parse_config(shelf.paged(), cache=cache).sections) == 300


def test_lines_are_found_in_their_sections_wherever_these_stand() -> None:
    config = parse_config("# head\nglobal\n  maxconn 1\n\n# note\nbackend a\n  mode http\n")
    assert config.locate(1) is None
    found = [one for line in (2, 5, 7) if (one := config.locate(line)) is not None]
    assert [(section.kind, line) for section, line in found] == [
        ("global", 1),
        ("global", 4),
        ("backend", 2),
    ]
    assert config.locate(8) is None


SECTIONS = (
    *("global\n  maxconn 1\n", "global\n  maxconn 2\n", "defaults\n  mode http\n", "defaults\n  mode tcp\n"),
    *("defaults d%d\n  mode http\n", "defaults d%d\n  mode http\n  balance source\n", "userlist u%d\n"),
    *("backend b%d\n", "backend b%d\n  server s 1.1.1.1:1\n", "backend b%d\n  server s 1.1.1.2:1\n  # c\n"),
    *("backend b%d\n  balance source\n", "listen l%d\n  bind :1\n", "frontend f%d\n  bind :80\n"),
    "frontend f%d\n  bind :443 ssl crt-list s/l.txt\n  use_backend %%[path,map(m/p.map)]\n",
    "backend c%d\n  .if defined(X)\n  mode http\n  .endif\n",
)
sections = st.tuples(st.sampled_from(SECTIONS), st.integers(0, 2)).map(
    lambda one: one[0] % one[1] if "%" in one[0] else one[0]
)
entries = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123"), max_size=6)
changes = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "map", "list", "file"]), st.integers(0, 9), sections), max_size=8
)


class Site:
    """Two ways to the same generation: from shelves, and from texts."""

    def __init__(self, texts: list[str], size: int) -> None:
        self.size = size
        self.texts = Shelf((n, Piece(text)) for n, text in enumerate(texts))
        self.map = Shelf((n, Piece(f"k{n} v\n")) for n in range(6))
        self.list = Shelf((n, Piece(f"s/{n}.pem h{n}\n")) for n in range(4))
        self.files = make_files(make_file(FileKind.CERT, f"s/{n}.pem", f"{n}") for n in range(6))
        self.cache = SectionCache()
        self.made: dict[tuple[int, ...], Page[Piece]] = {}

    def change(self, what: str, place: int, text: str) -> None:
        if what == "put":
            self.texts.put(place, Piece(text))
        elif what == "remove":
            self.texts.remove(place)
        elif what == "map":
            self.map.put(place, Piece(f"k{place % 7} {len(text)}\n"))
        elif what == "list":
            self.list.put(place, Piece(f"s/{place}.pem h{len(text) % 3}\n"))
        else:
            file = make_file(FileKind.CERT, f"s/{place}.pem", text)
            self.files = self.files.changed([file]) if len(text) % 3 else self.files.changed((), [file.path])

    def paged(self, shelf: Shelf[int, Piece]) -> Paged[Piece]:
        """Return what is on *shelf* in small pages, which are the same where their pieces are."""
        cut = in_pages(list(shelf.paged()), self.size)
        return Paged(self.made.setdefault(tuple(map(id, page.items)), page) for page in cut.pages)

    def build(self) -> Generation | None:
        try:
            config = parse_config(self.paged(self.texts), cache=self.cache)
        except ConfigSyntaxError:
            return None
        path_map = make_file(FileKind.MAP, "m/p.map", self.paged(self.map))
        crt_list = make_file(FileKind.CRT_LIST, "s/l.txt", self.paged(self.list))
        return make_generation(config, self.files.changed([path_map, crt_list]))


def afresh(generation: Generation) -> Generation:
    """Return the same generation, of which nothing is shared with any other."""
    files = [make_file(file.kind, file.path, file.content) for file in generation.files.values()]
    files.reverse()
    return make_generation(parse_config(generation.text), files)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(sections, max_size=10), changes, changes, st.integers(1, 4))
def test_what_is_shared_changes_neither_id_nor_diff_nor_plan(
    texts: list[str], earlier: list[tuple[str, int, str]], later: list[tuple[str, int, str]], size: int
) -> None:
    site = Site(texts, size)
    found: list[Generation] = []
    for history in (earlier, later):
        for change in history:
            site.change(*change)
        made = site.build()
        if made is None:
            return
        found.append(made)
    running, desired = found
    alone, other = afresh(running), afresh(desired)
    assert (running.id, desired.id) == (alone.id, other.id)
    assert (running, desired) == (alone, other)
    whole = diff_whole(alone.config, other.config)
    assert diff_configs(running.config, desired.config) == whole
    assert summary(make_plan(running, desired, capabilities=CAPABLE)) == summary(
        make_plan(alone, other, capabilities=CAPABLE)
    )


NAMING = """\
frontend f
  bind :443 ssl crt-list s/l.txt{strict}
  use_backend %[path,{method}(m/p.map)]
backend b
  server s 1.1.1.1:1
"""
file_changes = st.lists(
    st.tuples(st.sampled_from(["map", "list"]), st.integers(0, 9), st.sampled_from(["", "1", "22"])), max_size=8
)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.sampled_from(["map", "map_beg", "map_reg"]),
    st.sampled_from(["", " strict-sni"]),
    file_changes,
    file_changes,
    st.integers(1, 4),
)
def test_what_is_shared_changes_no_plan_of_files(
    method: str, strict: str, earlier: list[tuple[str, int, str]], later: list[tuple[str, int, str]], size: int
) -> None:
    site = Site([NAMING.format(method=method, strict=strict)], size)
    site.files = make_files(make_file(FileKind.CERT, f"s/{n}.pem", f"{n}") for n in range(10))
    found: list[Generation] = []
    for history in (earlier, later, earlier[:2]):
        for what, place, text in history:
            if text or what == "list":
                site.change(what, place, text)
            else:
                site.map.remove(place)
        made = site.build()
        assert made is not None
        found.append(made)
    for running, desired in ((found[0], found[1]), (found[1], found[2])):
        plan = make_plan(running, desired, capabilities=CAPABLE)
        assert summary(plan) == summary(make_plan(afresh(running), afresh(desired), capabilities=CAPABLE))


def summary(plan: Plan) -> object:
    return plan.operations, plan.reasons


def site_of(count: int) -> tuple[Shelf[int, Piece], SectionCache]:
    head = "global\ndefaults d\n  mode http\n"
    return Shelf(
        [(-1, Piece(head)), *((n, Piece(f"backend b{n} from d\n  server s 1.1.1.1:1\n")) for n in range(count))]
    ), (SectionCache())


def test_a_page_that_is_cut_in_two_differs_in_nothing() -> None:
    shelf, cache = site_of(2 * PAGE_SIZE)
    before = parse_config(shelf.paged(), cache=cache)
    added = [2 * PAGE_SIZE + n for n in range(2 * PAGE_SIZE)]
    for number in added:
        shelf.put(number, Piece(f"backend b{number} from d\n"))
    diff = diff_configs(before, parse_config(shelf.paged(), cache=cache))
    assert [section.name for section in diff.added] == [f"b{number}" for number in added]
    assert not (diff.removed)
    assert not (diff.changed)
    assert not (diff.reordered)


def test_a_section_that_is_replaced_is_where_it_was() -> None:
    config = parse_config("global\nbackend a\n  mode tcp\nbackend b\n")
    [new] = parse_config("backend a\n  mode http\n").sections
    [more] = parse_config("backend c\n").sections
    assert config.changed([new, more]) == parse_config("global\nbackend a\n  mode http\nbackend b\nbackend c\n")


paths = st.sampled_from([f"{folder}/{name}" for folder in "ab" for name in "pqrstu"])
files = st.lists(st.tuples(paths, st.sampled_from("xyz")), max_size=9)


@given(files, files, st.lists(paths, max_size=4))
def test_files_are_a_mapping_whatever_was_put_and_removed(
    start: list[tuple[str, str]], put: list[tuple[str, str]], removed: list[str]
) -> None:
    def make(some: list[tuple[str, str]]) -> dict[str, object]:
        return {path: make_file(FileKind.FILE, path, content) for path, content in some}

    expected = {**make(start)}
    held = make_files(make_file(FileKind.FILE, path, content) for path, content in start)
    for path in removed:
        expected.pop(path, None)
    expected |= make(put)
    changed: Files = held.changed([make_file(FileKind.FILE, path, content) for path, content in put], removed)
    assert dict(changed) == expected
    assert list(changed) == sorted(expected)
    assert changed.seal == make_files(changed.values()).seal
    assert all((path in changed) is (path in expected) for path in ("a/p", "b/u", "zz", ""))


def test_a_configuration_is_compared_by_its_text() -> None:
    assert parse_config("global\n") == parse_config("global\n")
    assert parse_config("global\n") != parse_config("global\n# note\n")
    assert isinstance(parse_config(""), Config)
