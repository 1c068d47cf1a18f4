import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.errors import Problem
from haptic_trio.haproxy.config.parser import ConfigSyntaxError, SectionCache, parse_config
from haptic_trio.haproxy.model import Config

Check = Callable[..., tuple[bool, str]]

TEXT = """\
# routes
global
  maxconn 100

defaults base
  mode http
frontend web from base
  bind 127.0.0.1:8080   # one
  use_backend %[path,map(maps/p.map)]

backend app from base
  server s1 10.0.0.1:80 check
"""

FAULTY = """\
mode http
global x
  maxcon 10
backend app
  server s1 10.0.0.1:80 chek
  option "httpchk
backend app
backend
  .if x
"""


def _rejection(text: str, **options: object) -> ConfigSyntaxError:
    with pytest.raises(ConfigSyntaxError) as caught:
        parse_config(text, **options)  # type: ignore[arg-type]  # the options under test
    return caught.value


def _places(config: Config) -> list[tuple[int, tuple[str, ...]]]:
    firsts = zip(config.sections, config.first_lines(), strict=True)
    return [(first + line.line - 1, line.words) for one, first in firsts for line in (one.header, *one.directives)]


def test_sections_have_kind_name_and_directives_with_their_lines() -> None:
    config = parse_config(TEXT)
    assert [one.key for one in config.sections] == [
        ("global", ""),
        ("defaults", "base"),
        ("frontend", "web"),
        ("backend", "app"),
    ]
    web = config.find("frontend", "web")
    assert web is not None
    assert (web.header.line, web.header.words) == (1, ("frontend", "web", "from", "base"))
    assert [(one.line, one.words) for one in web.directives] == [
        (2, ("bind", "127.0.0.1:8080")),
        (3, ("use_backend", "%[path,map(maps/p.map)]")),
    ]


def test_all_problems_are_reported_at_once_in_order_with_line_column_and_excerpt() -> None:
    problems = _rejection(FAULTY, source="web.cfg").problems
    assert [(one.line, one.column) for one in problems] == [
        (1, 1),
        (2, 8),
        (3, 3),
        (5, 25),
        (6, 10),
        (7, 9),
        (8, 8),
        (9, 3),
    ]
    assert {one.source for one in problems} == {"web.cfg"}
    assert problems[2].excerpt == "  maxcon 10"
    assert problems[2].hint == "did you mean 'maxconn'?"
    assert "line 4" in problems[5].hint


def test_a_missing_line_feed_is_a_problem_at_the_very_end() -> None:
    (problem,) = _rejection("global\n  maxconn 10").problems
    assert (problem.line, problem.column) == (2, 13)
    assert "line feed" in problem.message


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "  \t\n\n"])
def test_a_text_without_words_is_an_empty_configuration(text: str) -> None:
    assert len(parse_config(text).sections) == 0


def test_comments_blanks_quoting_and_position_do_not_change_the_digest() -> None:
    other = TEXT.replace("# routes", "\n\n#").replace("  mode http", "\tmode  'http' # x").replace("app", '"app"')
    assert parse_config(other).digest == parse_config(TEXT).digest


@given(st.lists(st.lists(st.sampled_from(["a", "b", "", "ab", "1", "\n"]), max_size=4), max_size=4))
def test_the_digest_distinguishes_word_and_line_boundaries(lines: list[list[str]]) -> None:
    def digest(content: list[list[str]]) -> str:
        quoted = ("description x " + " ".join(repr(word).replace("'\\n'", "\\n") for word in line) for line in content)
        return parse_config("backend b\n" + "".join(f"{line}\n" for line in quoted)).digest

    joined = [[word for line in lines for word in line]]
    glued = [["".join(line)] for line in lines]
    assert (digest(joined) == digest(lines)) is (joined == lines)
    assert (digest(glued) == digest(lines)) is (glued == lines)


def test_a_reference_to_the_environment_is_not_the_same_as_its_letters() -> None:
    expanded = parse_config('global\n  node "$A"\n')
    literal = parse_config("global\n  node '\"$A\"'\n")
    assert expanded.sections[0].directives[0].words == literal.sections[0].directives[0].words
    assert expanded.digest != literal.digest


def test_a_section_keyword_may_be_quoted_or_escaped() -> None:
    config = parse_config("'back'end \\x61\n\"backend\" b\n")
    assert [one.key for one in config.sections] == [("backend", "a"), ("backend", "b")]


def test_what_looks_like_a_section_inside_a_word_is_none() -> None:
    assert len(parse_config("backend a\n  description x backend 'global'\n").sections) == 1
    assert "unknown keyword 'backend_x'" in str(_rejection("backend a\nbackend_x\n"))


def test_conditions_before_and_between_sections_are_kept_in_place() -> None:
    config = parse_config(".if 1\nglobal\n.else\nbackend b\n.endif\n.notice done\n")
    assert [one.words for one in config.preamble] == [(".if", "1")]
    assert [[line.words[0] for line in one.directives] for one in config.sections] == [[".else"], [".endif", ".notice"]]


def test_the_cache_gives_the_same_model_as_a_fresh_parse() -> None:
    cache = SectionCache()
    parse_config(TEXT, cache=cache)
    moved = "# one more\n\n" + TEXT.replace("s1 10.0.0.1", "s1 10.0.0.2")
    assert parse_config(moved, cache=cache) == parse_config(moved)
    assert _places(parse_config(moved, cache=cache)) == _places(parse_config(moved))


def test_only_a_changed_section_is_parsed_again() -> None:
    cache = SectionCache()
    parse_config(TEXT, cache=cache)
    assert (cache.hits, cache.misses) == (0, 4)
    parse_config(TEXT.replace("10.0.0.1", "10.0.0.2"), cache=cache)
    assert (cache.hits, cache.misses) == (3, 5)


def test_cached_problems_have_the_lines_and_the_source_of_the_present_text() -> None:
    cache = SectionCache()
    first = _rejection(FAULTY, cache=cache, source="a")
    moved = _rejection("\n\n" + FAULTY, cache=cache, source="b")
    assert [(one.line + 2, one.column, one.message) for one in first.problems] == [
        (one.line, one.column, one.message) for one in moved.problems
    ]
    assert {one.source for one in moved.problems} == {"b"}


def test_a_section_inside_a_condition_is_not_confused_with_the_same_text_outside() -> None:
    cache = SectionCache()
    section = "global\n  no-such-word\n"
    parse_config(f".if 0\n{section}.endif\n", cache=cache)
    assert len(_rejection(section, cache=cache).problems) == 1


def test_the_cache_holds_no_more_than_its_limit() -> None:
    cache = SectionCache(limit=3)
    for number in range(10):
        parse_config(f"backend b{number}\n", cache=cache)
    assert len(cache) == 3
    parse_config("backend b9\n", cache=cache)
    assert cache.hits == 1


fragments = st.lists(
    st.sampled_from(
        [
            "global\n",
            "backend b\n",
            "listen l\n",
            "defaults\n",
            " mode http\n",
            " server s 1.1.1.1:1\n",
            ".if 1\n",
            ".endif\n",
            " option 'x\n",
            "'back'end c\n",
            "# c\n",
            "\n",
            " bind :80 \\",
            '"',
        ]
    )
).map("".join)


@given(fragments, fragments)
def test_a_cache_of_any_history_changes_neither_model_nor_problems(earlier: str, text: str) -> None:
    def outcome(text: str, cache: SectionCache | None) -> object:
        try:
            return parse_config(text, cache=cache)
        except ConfigSyntaxError as exc:
            return exc.problems

    cache = SectionCache()
    outcome(earlier, cache)
    assert outcome(text, cache) == outcome(text, None)


@given(st.text())
def test_any_text_is_parsed_or_rejected_with_places_inside_it(text: str) -> None:
    problems: tuple[Problem, ...] = ()
    try:
        parse_config(text)
    except ConfigSyntaxError as exc:
        problems = exc.problems
    assert all(1 <= problem.line <= text.count("\n") + 1 for problem in problems)


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("words", "left"),
    [("a\rb c", "a"), ("a\\x00b c", "a c")],
    ids=["the rest of a line after a carriage return", "the rest of a word after a NUL"],
)
def test_what_haproxy_would_silently_drop_is_rejected(check_config: Check, words: str, left: str) -> None:
    text = f"global\n  description {words}\n"
    accepted, dump = check_config(text, "-dC")
    assert accepted
    assert f"description {left} \n" in dump
    assert len(_rejection(text).problems) == 1


@pytest.mark.haproxy
@pytest.mark.parametrize("rate", ["http_req_rate(0)", "gpc0,conn_rate(0s)", "gpc_rate(2,00ms)"])
def test_a_rate_over_no_time_that_ends_haproxy_at_a_request_is_rejected(check_config: Check, rate: str) -> None:
    text = f"backend b\n  stick-table type ip size 1k store {rate}\n"
    assert check_config(text)[0]

    [problem] = _rejection(text).problems

    assert "a rate is counted over a period of 0" in problem.message
    parse_config(text.replace("0)", "10s)").replace("0s)", "1s)").replace("00ms)", "10ms)"), source="haproxy.cfg")


def test_sixty_thousand_lines_are_parsed_in_far_less_than_a_second_of_work() -> None:
    text = "defaults\n  mode http\n" + "".join(
        f"backend app-{number}\n  balance roundrobin\n  option forwardfor\n  http-request set-header X-A 'a b'\n"
        f"  server s1 10.0.{number // 256}.{number % 256}:80 weight 10 check\n  server s2 10.1.0.1:80 weight 10 check\n"
        for number in range(10_000)
    )
    started = time.process_time()
    config = parse_config(text)
    assert time.process_time() - started < 1.5
    assert len(config.sections) == 10_001
