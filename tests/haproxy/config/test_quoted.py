"""Messages about output that may derive from a Secret quote HAProxy's keywords alone."""

import re
import time
import timeit
from collections.abc import Callable

import pytest

from haptic_trio.errors import Problem
from haptic_trio.haproxy.config.check_output import parse_check_output
from haptic_trio.haproxy.config.quoted import describe_problems, without_output
from tests.haproxy.corpus_cases import all_cases

SECRET = "S3CRET-word"


@pytest.mark.parametrize("text", ["'a'S3CRET'b'", "[a]S3CRET]", '"a"S3CRET"', "'a' b's S3CRET'"])
def test_nothing_is_shown_behind_a_value_with_quotes_in_it(text: str) -> None:
    assert without_output(Problem(message=f"unexpected {text}.")).message == f"unexpected {text[0]}…"


def test_keywords_are_left() -> None:
    problem = Problem(
        message="'http-request set-header' expects 'if' or 'unless' but found 'S3CRET' [x y]", excerpt="l"
    )

    assert without_output(problem).message == "'http-request set-header' expects 'if' or 'unless' but found '…' […]"
    assert without_output(problem).excerpt == ""


@pytest.mark.parametrize("shape", ["'a", "[", "'", "'a. ", "'a\"", "n't '"])
def test_many_quotes_are_read_in_linear_time(shape: str) -> None:
    def steps(count: int) -> float:
        problem = Problem(message=f"unexpected {shape * count}")
        return min(timeit.repeat(lambda: without_output(problem), number=1, repeat=5, timer=time.process_time))

    assert steps(64_000) < 16 * max(steps(16_000), 0.001)


@pytest.mark.parametrize("text", [f"'{SECRET}", f"[{SECRET}", f"doesn't accept '{SECRET}", f"'a'{SECRET} b"])
def test_what_is_not_closed_is_not_shown(text: str) -> None:
    assert SECRET not in without_output(Problem(message=f"unexpected {text}")).message


@pytest.mark.parametrize(
    "message",
    [
        f"unexpected 'a' {SECRET}'",
        f"'balance' has: unexpected 'if' {SECRET}'.",
        f'found "a" {SECRET}" in section \'backend\'',
    ],
)
def test_a_quoted_value_may_have_an_end_inside(message: str) -> None:
    assert SECRET not in without_output(Problem(message=message)).message


def test_the_proxy_that_a_message_is_about_is_named() -> None:
    message = f"backend 'one_web' : unable to find server '{SECRET}'"

    assert describe_problems([Problem(message=message)]) == "backend 'one_web' : unable to find server '…'"


@pytest.mark.haproxy
@pytest.mark.parametrize("form", ["{}", "%[str({}),nothing]", '"{} two"', "[{}:12]"])
def test_messages_of_haproxy_show_keywords_alone(form: str, check_config: Callable[..., tuple[bool, str]]) -> None:
    quoting = 0
    cases = all_cases()
    for number, case in enumerate([one for one in cases if one.name == "by hand: resolvers"] + cases[::80]):
        # One of the words behind the keyword of each line is a value.
        behind = rf"^(\s+\S+(?: \S+){{{number % 3}}}) [^\s'\"]+"
        text = re.sub(behind, rf"\1 {form.format(SECRET)}", case.text, flags=re.MULTILINE)
        output = check_config(text)[1]
        found = parse_check_output(output)
        quoting += SECRET in output
        assert SECRET not in repr([without_output(problem) for problem in (*found.errors, *found.warnings)]), case.name
    assert quoting
