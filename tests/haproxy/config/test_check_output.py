from collections.abc import Callable
from pathlib import Path

import pytest

from haptic_trio.haproxy.config.check_output import (
    MOST_WARNINGS,
    OUTPUT_LIMIT,
    BoundedOutput,
    CheckOutput,
    parse_check_output,
)

Check = Callable[..., tuple[bool, str]]


def _read(check_config: Check, text: str) -> CheckOutput:
    return parse_check_output(check_config(text)[1])


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("global\n  maxcon 1\n", 2, "unknown keyword 'maxcon' in 'global' section"),
        ("backend b\n  server s\n", 2, "'server' expects <name> and <addr>[:<port>] as arguments."),
        ("backend b\n  server s 127.0.0.1:1 chek\n", 2, "'server b/s' : unknown keyword 'chek'"),
        ("frontend f\n  server s 127.0.0.1:1\n", 2, "'server' not allowed because frontend 'f' has no backend capab"),
        ("backend b\nbackend b\n", 2, "backend 'b' has the same name as backend 'b' declared at haproxy.cfg:1."),
        ("backend b\n  server s 127.0.0.1:1\n  server s 127.0.0.1:2\n", 3, "backend 'b', another server named 's'"),
        ("frontend f\n  default_backend nope\n", 0, "Proxy 'f': unable to find required default_backend: 'nope'."),
        ("global", 1, "Missing LF on last line"),
        ("frontend f\n  bind 127.0.0.1:1 ssl crt /no/such\n", 2, "'bind 127.0.0.1:1' in section 'frontend' :"),
    ],
)
def test_an_error_of_real_haproxy_has_its_line(check_config: Check, text: str, line: int, message: str) -> None:
    output = _read(check_config, text)
    # Newer versions say some errors twice, in other words the second time.
    assert {one.line for one in output.errors} == {line}
    assert output.errors[0].message.startswith(message)
    assert {one.source for one in output.errors} == {"haproxy.cfg" if line else ""}


@pytest.mark.haproxy
def test_a_lexical_error_has_column_and_excerpt(check_config: Check) -> None:
    (error,) = _read(check_config, "global\n  description 'x\n").errors
    assert (error.line, error.column) == (2, 15)
    assert error.message == "unmatched quote at position 15"
    assert error.excerpt.splitlines()[0] == "  description 'x"


@pytest.mark.haproxy
def test_all_errors_and_all_warnings_are_distinguished(check_config: Check) -> None:
    output = _read(
        check_config,
        "defaults\n  mode http\nfrontend f\n  bind unix@x\n  balance source\n  optio x\n  tiemout client 1s\n",
    )
    assert [one.line for one in output.errors] == [6, 7]
    assert [one.line for one in output.warnings] == [5]


@pytest.mark.haproxy
def test_a_warning_of_several_lines_is_one_problem(check_config: Check) -> None:
    (warning,) = _read(check_config, "frontend f\n  bind unix@x\n").warnings
    assert warning.message == "missing timeouts for frontend 'f'."
    assert warning.excerpt.startswith("While not properly invalid")
    assert not _read(check_config, "frontend f\n  bind unix@x\n").errors


@pytest.mark.haproxy
def test_a_valid_configuration_has_no_problems(check_config: Check) -> None:
    assert _read(check_config, "backend b\n  mode http\n") == CheckOutput()


@pytest.mark.haproxy
def test_a_bad_file_of_a_list_is_named_in_the_message(check_config: Check, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate\n")
    (tmp_path / "all.txt").write_text("bad.pem\n")
    (error,) = _read(check_config, "frontend f\n  bind 127.0.0.1:1 ssl crt-list all.txt\n").errors
    assert error.line == 2
    assert "'bad.pem'" in error.message


def test_text_that_is_not_a_message_is_an_error_of_its_own() -> None:
    (error,) = parse_check_output("haproxy: error while loading shared libraries: libssl.so.3\nsecond\n").errors
    assert error.message.startswith("haproxy: error while loading")
    assert error.excerpt == "second"


@pytest.mark.parametrize(
    "text", ["", "Configuration file is valid\n", "[NOTICE]   (7) : haproxy version is 2.8.25\nWarnings were found.\n"]
)
def test_nothing_wrong_means_no_problems(text: str) -> None:
    assert parse_check_output(text) == CheckOutput()


@pytest.mark.parametrize("size", [1, 7, 65536])
def test_very_many_warnings_hide_no_error_behind_them(size: int) -> None:
    warning = "[WARNING]  (7) : config : parsing [haproxy.cfg:{}]: previous action is final.\n   | excerpt\n"
    output = BoundedOutput()
    text = "".join(map(warning.format, range(1, 2_000)))
    text = f"{text}[ALERT]    (7) : config : parsing [haproxy.cfg:3000]: unknown keyword 'x'.\n  more"
    for start in range(0, len(text), size):
        output.take(text[start : start + size].encode())

    found = parse_check_output(output.text())
    assert [one.line for one in found.warnings] == [*range(1, MOST_WARNINGS + 1)]
    assert [(one.line, one.excerpt) for one in found.errors] == [(3000, "  more")]


@pytest.mark.parametrize("text", ["x", "x\n", "[ALERT]    (7) : y\n"])
def test_other_output_is_cut(text: str) -> None:
    output = BoundedOutput()
    for _ in range(3):
        output.take(text.encode() * OUTPUT_LIMIT)

    assert len(output.text()) == OUTPUT_LIMIT
