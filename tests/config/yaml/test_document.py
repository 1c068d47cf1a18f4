import pytest

from haptic_trio.config.yaml.document import enclosing_paths, parse_document
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.yaml.paths import key_path
from haptic_trio.yaml.reader import MAX_DEPTH


def problem_of(text: str) -> Problem:
    with pytest.raises(ConfigInvalidError) as caught:
        parse_document(text, source="ConfigMap a/b")
    (problem,) = caught.value.problems
    assert problem.source == "ConfigMap a/b"
    return problem


def test_syntax_error_has_line_and_column() -> None:
    problem = problem_of("a: 1\nb: ]\n")

    assert (problem.line, problem.column) == (2, 4)
    assert "not valid YAML" in problem.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [("a: b: c", "quotes"), ("a: 1\n---\nb: 2", "`---`")],
)
def test_common_mistakes_have_a_hint(text: str, hint: str) -> None:
    assert hint in problem_of(text).hint


@pytest.mark.parametrize("text", ["a: \x01", "a: \ud800", "a: \x00"])
def test_forbidden_character_is_a_problem(text: str) -> None:
    assert "character" in problem_of(text).message


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 200_000])
@pytest.mark.parametrize("brackets", [("[", "]"), ("{a: ", "}"), ("- ", "")])
def test_deep_nesting_is_an_error_and_not_a_crash(depth: int, brackets: tuple[str, str]) -> None:
    left, right = brackets

    assert "nested deeper" in problem_of(left * depth + "x" + right * depth).message


def test_anchor_that_contains_itself_is_an_error() -> None:
    assert "no anchor before it" in problem_of("a: &x [1, *x]").message


def test_aliases_that_multiply_are_an_error() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    assert "expand to too much" in problem_of("\n".join(levels)).message


def test_aliases_that_nest_deeply_are_an_error() -> None:
    levels = ["- &a0 [x]", *(f"- &a{n} [*a{n - 1}]" for n in range(1, 400))]

    assert "expand to too much" in problem_of("\n".join(levels)).message


def test_key_with_special_characters_is_quoted_in_a_path() -> None:
    assert key_path("maps", "host.map") == 'maps["host.map"]'
    assert key_path("", "maps") == "maps"
    assert key_path("maps", 'a"].x') == 'maps["a\\"].x"]'


@pytest.mark.parametrize(
    ("path", "parents"),
    [
        ("a.b[0].c", ["a.b[0].c", "a.b[0]", "a.b", "a"]),
        (
            key_path("maps", 'x"].y[1]') + ".template",
            [key_path("maps", 'x"].y[1]') + ".template", 'maps["x\\"].y[1]"]', "maps"],
        ),
        ("", []),
    ],
)
def test_enclosing_paths_come_innermost_first(path: str, parents: list[str]) -> None:
    assert list(enclosing_paths(path)) == parents


def test_error_for_a_tab_as_indentation_has_a_hint() -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        parse_document("templating:\n\tlibraries: [base]\n", source="x")

    assert "indent with spaces, not with tabs" in caught.value.problems[0].hint
