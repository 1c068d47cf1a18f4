"""Contents in pieces: nothing is lost, and little changes where little changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.agent.pieces import (
    LARGEST,
    Pieces,
    RecipeError,
    cut_config,
    cut_file,
    follow_steps,
    join_pieces,
    make_steps,
)
from haptic_trio.haproxy.config.parser import parse_config

LIMIT = 1 << 30

lines = st.lists(st.binary(max_size=200), max_size=200).map(b"\n".join)
recipes = st.lists(st.sampled_from("abcdefgh"), max_size=30).map(tuple)


def join(pieces: Pieces) -> bytes:
    return join_pieces(pieces.recipe, pieces.contents.get, limit=LIMIT)


@given(lines)
def test_joined_pieces_of_a_file_are_the_file(content: bytes) -> None:
    assert join(cut_file(content)) == content


@given(st.text("# x\n"), st.lists(st.sampled_from(["  server s{n} 127.0.0.1:1\n", "# é\n", "\n", "  mode tcp\n"])))
def test_joined_pieces_of_a_configuration_are_its_text(comment: str, parts: list[str]) -> None:
    head = "".join(f"#{line}\n" for line in comment.split("\n"))
    text = head + "".join(f"backend b{n}\n" + part.format(n=n) for n, part in enumerate(parts))
    assert join(cut_config(parse_config(text))).decode() == text


def test_a_section_of_any_size_is_cut() -> None:
    servers = "".join(f"    server s{n} 127.0.0.1:{n}\n" for n in range(1, 9000))
    pieces = cut_config(parse_config(f"backend a\n{servers}"))
    assert max(map(len, pieces.contents.values())) <= LARGEST
    assert join(pieces).decode() == f"backend a\n{servers}"


@pytest.mark.parametrize("size", [0, 1, LARGEST, LARGEST + 1, 3 * LARGEST + 7])
def test_no_piece_is_larger_than_allowed_even_without_line_feeds(size: int) -> None:
    content = b"x" * size
    pieces = cut_file(content)
    assert join(pieces) == content
    assert all(0 < len(piece) <= LARGEST for piece in pieces.contents.values())


@given(recipes, recipes)
def test_steps_over_any_base_lead_to_the_recipe(recipe: tuple[str, ...], base: tuple[str, ...]) -> None:
    assert follow_steps(make_steps(recipe, base), base, limit=1000) == recipe


def test_one_changed_backend_of_ten_thousand_is_one_new_piece_and_two_ranges() -> None:
    def text(port: int) -> str:
        return "".join(f"backend b{n}\n    server one 10.0.0.1:{port if n == 7000 else 80}\n" for n in range(10_000))

    former, changed = cut_config(parse_config(text(80))), cut_config(parse_config(text(81)))
    steps = make_steps(changed.recipe, former.recipe)
    assert [step for step in steps if isinstance(step, str)] == [changed.recipe[7000]]
    assert len(steps) == 3
    assert len(changed.contents[changed.recipe[7000]]) < 60


def test_one_changed_line_of_a_large_map_changes_few_kilobytes() -> None:
    entries = [b"host-%d.example backend-%d\n" % (n, n) for n in range(50_000)]
    former = cut_file(b"".join(entries))
    entries.insert(25_000, b"new.example backend\n")
    changed = cut_file(b"".join(entries))
    fresh = [piece for digest, piece in changed.contents.items() if digest not in former.contents]
    assert sum(map(len, fresh)) < LARGEST


@pytest.mark.parametrize("step", [(-1, 1), (0, 3), (2, 1), (0, 0), (1, -1)])
def test_a_range_that_the_base_has_not_is_rejected(step: tuple[int, int]) -> None:
    with pytest.raises(RecipeError):
        follow_steps((step,), ("a", "b"), limit=10)


def test_a_short_recipe_of_many_pieces_is_rejected() -> None:
    with pytest.raises(RecipeError, match="more than 10 pieces"):
        follow_steps(((0, 2),) * 6, ("a", "b"), limit=10)


def test_a_content_that_is_many_times_the_same_piece_is_rejected() -> None:
    with pytest.raises(RecipeError, match="more than 10 bytes"):
        join_pieces(("a",) * 6, {"a": b"xx"}.get, limit=10)
