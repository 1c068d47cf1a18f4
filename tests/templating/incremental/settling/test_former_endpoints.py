"""Texts of former outputs without the endpoints that have been removed."""

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.settling.former_endpoints import (
    addresses_in,
    as_it_may_be,
    endpoint_lookups,
    without_former,
)
from tests.support.kubernetes import service

QUESTION = ("get", "slices", "default", "web")


MALFORMED = [
    {},
    None,
    7,
    *({"endpoints": one} for one in (None, 7, "10.0.0.2", [None, 7, {"addresses": 7}, {"addresses": [7]}])),
]


def output(text: str) -> FragmentOutput:
    return FragmentOutput(text, (), "1", endpoints=(QUESTION,))


def present(*addresses: str) -> Any:
    slices = [{"endpoints": [{"addresses": [address]} for address in addresses]}, *MALFORMED]

    def look_up(question: tuple[str, ...]) -> frozenset[str]:
        assert question == QUESTION
        return addresses_in(slices)

    return look_up


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "backend a\n    server s1 10.0.0.1:80\n    server s2 10.0.0.2:80 ssl\n",
            "backend a\n    server s1 10.0.0.1:80\n",
        ),
        ("backend a\n    server s1 [2001:db8::2]:80\n", "backend a\n"),
        ("    server s1 0.0.0.0:80\n", "    server s1 0.0.0.0:80\n"),
        ("\tserver  s1  10.0.0.2:80", ""),
        ("key a,b,10.0.0.2:80,10.0.0.1:80\nother c,10.0.0.2:80\n", "key a,b,10.0.0.1:80\nother c\n"),
        ("key a,[2001:db8::1]:80,[2001:db8::2]:80\n", "key a,[2001:db8::1]:80\n"),
        # These lines name no server.
        ("    http-request set-header a b,10.0.0.2:80\n", "    http-request set-header a b,10.0.0.2:80\n"),
        ("    # server s1 10.0.0.2:80\n", "    # server s1 10.0.0.2:80\n"),
        ("", ""),
    ],
)
def test_lines_and_items_with_other_addresses_are_removed(text: str, expected: str) -> None:
    assert without_former(output(text), present("10.0.0.1", "2001:DB8:0:0::1")).text == expected


def test_all_addresses_stay_while_a_slice_has_an_invalid_one() -> None:
    """The owner of the Service has made a mistake, and the endpoints that it means are unknown."""
    made = output("    server s1 10.0.0.2:80\n")
    assert without_former(made, present("10.0.0.1", "no address")) is made


def test_an_output_stays_itself_if_all_its_endpoints_are_present() -> None:
    made = output("    server s1 10.0.0.1:80\n")
    assert without_former(made, present("10.0.0.1", "10.0.0.2")) is made
    # One that looked no endpoints up is not even searched.
    static = FragmentOutput("    server s1 10.0.0.9:80\n", (), "1")
    assert without_former(static, present()) is static


def test_whole_lookups_of_endpoints_count() -> None:
    asked = [QUESTION, ("has", "slices", "default", "web"), ("get", "services", "default", "web")]
    assert endpoint_lookups(asked, frozenset({"slices"})) == (QUESTION,)


def test_conditions_revise_a_text_one_after_the_other_or_reject_it() -> None:
    made = msgspec.structs.replace(
        output("    server s1 10.0.0.1:80\n    server s2 10.0.0.2:80\n"),
        conditions=(
            lambda lookups, text: text + lookups,
            lambda _lookups, text: text.upper() if "s1" in text else None,
        ),
    )
    variables = {"resources": "end"}

    revised = as_it_may_be(made, variables, present("10.0.0.1"))
    assert revised is not None
    assert revised.text == "    SERVER S1 10.0.0.1:80\nEND"
    assert as_it_may_be(made, variables, present("10.0.0.2")) is None
    plain = output("    server s1 10.0.0.1:80\n")
    assert as_it_may_be(plain, variables, present("10.0.0.1")) is plain


def test_a_condition_that_fails_makes_the_output_unusable_and_is_logged_without_its_values() -> None:
    def fail(_lookups: Any, _text: str) -> str | None:
        raise ValueError("invalid literal: 'hunter2'")

    made = msgspec.structs.replace(
        FragmentOutput("text", (), "1", resource=service("web", namespace="shop")), conditions=(fail,)
    )
    with capture_logs() as logs:
        assert as_it_may_be(made, {"resources": None}, present()) is None

    (line,) = logs
    assert (line["log_level"], line["object"], line["component"]) == ("warning", "Service shop/web", "templating")
    assert line["error"].startswith("ValueError: invalid literal")
    assert line["place"].startswith(f"{__name__}:")
    assert "hunter2" not in str(line)
