"""A quoted word is data: phase 1 rejects it where HAProxy would read it as a flag of an ACL, and nowhere else."""

from collections.abc import Callable

import pytest

from haptic_trio.haproxy.config.parser import ConfigSyntaxError, parse_config

Check = Callable[..., tuple[bool, str]]

FLAGS = ["-i", "-n", "-u", "-m", "-M", "-f", "--", "-x"]
HEAD = """\
defaults
    mode http
    timeout client 1s
    timeout server 1s
    timeout connect 1s
frontend web
    bind 127.0.0.1:1
"""
PLACES = {
    "anonymous": "http-request deny if { path -m str %s }",
    "negated": "http-request deny unless TRUE !{ path -m str %s }",
    "second": "http-request deny if { path /a } { path -i -m str %s }",
    "named": "acl one path -m str %s",
    "bare": "use_backend app if { path %s }",
    "branch": ".if 1\n    http-request deny if { path -m str %s }\n    .endif",
    "behind a file": "http-request deny if { path -f list.txt %s }",
}
ELSEWHERE = [
    "http-request set-header X-A %s",
    "http-request deny if { path -m str -- /a %s }",
    "http-request deny if { path /a %s }",
    "http-request return status 200 content-type text/plain string %s if { path /a }",
    "log-format %s",
]


def quote(text: str) -> str:
    return f"'{text}'"


def problems_of(text: str) -> list[str]:
    try:
        parse_config(text)
    except ConfigSyntaxError as exc:
        return [problem.message for problem in exc.problems]
    return []


@pytest.mark.parametrize("place", [pytest.param(line, id=name) for name, line in PLACES.items()])
@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("quoted", ["'-%s'", '"-%s"', "\\x2d%s", "''-%s"])
def test_a_quoted_flag_is_rejected(place: str, flag: str, quoted: str) -> None:
    word = quoted % flag[1:]

    assert f"HAProxy reads '{flag}' as a flag in spite of its quotes" in problems_of(f"{HEAD}    {place % word}\n")


@pytest.mark.haproxy
@pytest.mark.parametrize("place", [pytest.param(line, id=name) for name, line in PLACES.items() if "list" not in line])
@pytest.mark.parametrize("flag", FLAGS)
def test_behind_two_dashes_a_flag_is_a_pattern(check_config: Check, place: str, flag: str) -> None:
    text = f"{HEAD}    {place % ('-- ' + quote(flag))}\n\nbackend app\n    server one 127.0.0.1:2\n"

    assert problems_of(text) == []
    accepted, output = check_config(text)
    assert accepted, output


@pytest.mark.haproxy
@pytest.mark.parametrize("line", ELSEWHERE)
@pytest.mark.parametrize("flag", FLAGS)
def test_quoted_words_outside_of_flag_positions_are_accepted(check_config: Check, line: str, flag: str) -> None:
    text = f"{HEAD}    {line % quote(flag)}\n"

    assert problems_of(text) == []
    accepted, output = check_config(text)
    assert accepted, output


def test_unquoted_flags_are_accepted() -> None:
    assert problems_of(f"{HEAD}    http-request deny if {{ path -i -m beg -- '-i' }}\n") == []


def test_a_flag_without_its_argument_is_rejected() -> None:
    # HAProxy dies of it.
    assert problems_of(f"{HEAD}    http-request deny if {{ path -u }}\n") == ["'-u' needs an argument"]


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ("http-check expect hdr name '-m' value a", True),
        ("http-check expect hdr name -m beg '-m'", False),
        ("http-check expect string '-m'", False),
    ],
)
def test_a_health_check_reads_no_flag_from_data(line: str, is_read: bool) -> None:
    text = f"{HEAD}backend app\n    option httpchk\n    {line}\n"

    assert bool(problems_of(text)) == is_read
