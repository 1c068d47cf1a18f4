import pytest

from haptic_trio.config.yaml.document import MAX_DEPTH, enclosing_paths, key_path, parse_document
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem


def refusal(text: str) -> Problem:
    with pytest.raises(ConfigInvalidError) as caught:
        parse_document(text, source="ConfigMap a/b")
    (problem,) = caught.value.problems
    assert problem.source == "ConfigMap a/b"
    return problem


def test_syntax_error_has_line_and_column() -> None:
    problem = refusal("a: 1\nb: ]\n")

    assert (problem.line, problem.column) == (2, 4)
    assert "not valid YAML" in problem.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [("a: b: c", "quotes"), ("a: 1\n---\nb: 2", "`---`")],
)
def test_usual_slips_have_a_hint(text: str, hint: str) -> None:
    assert hint in refusal(text).hint


@pytest.mark.parametrize("text", ["a: \x01", "a: \ud800", "a: \x00"])
def test_forbidden_character_is_a_problem(text: str) -> None:
    assert "character" in refusal(text).message


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 200_000])
@pytest.mark.parametrize("brackets", [("[", "]"), ("{a: ", "}"), ("- ", "")])
def test_deep_nesting_is_refused_not_fatal(depth: int, brackets: tuple[str, str]) -> None:
    left, right = brackets

    assert "nested deeper" in refusal(left * depth + "x" + right * depth).message


def test_part_that_contains_itself_is_refused() -> None:
    assert "contains it" in refusal("a: &x [1, *x]").message


def test_aliases_that_multiply_are_refused() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    assert "values" in refusal("\n".join(levels)).message


def test_aliases_that_nest_deeply_are_refused() -> None:
    levels = ["- &a0 [x]", *(f"- &a{n} [*a{n - 1}]" for n in range(1, 400))]

    assert "nested deeper" in refusal("\n".join(levels)).message


def test_path_of_a_key_that_is_no_word_is_quoted() -> None:
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
def test_enclosing_paths_go_from_the_inside_out(path: str, parents: list[str]) -> None:
    assert list(enclosing_paths(path)) == parents


def test_a_tab_that_indents_is_told() -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        parse_document("templating:\n\tlibraries: [base]\n", source="x")

    assert "indent with spaces, not with tabs" in caught.value.problems[0].hint
