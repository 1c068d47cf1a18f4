"""Texts of errors name the problem without the notation of Python."""

from pathlib import Path

import pytest

from haptic_trio.errors import HapticError, text_of


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (HapticError("the port is taken"), "the port is taken"),
        (HapticError(), "HapticError"),
        (FileNotFoundError(2, "No such file or directory", Path("/run/x")), "/run/x: No such file or directory"),
        (OSError(18, "Invalid cross-device link", Path("/a"), None, b"/b"), "/a -> /b: Invalid cross-device link"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (OSError("no route to host"), "no route to host"),
        (TimeoutError(), "TimeoutError"),
        (KeyError("name"), "KeyError: 'name'"),
        (ExceptionGroup("two", [HapticError("a"), ExceptionGroup("one", [HapticError("b")])]), "a; b"),
        (ExceptionGroup("same", [HapticError("a"), HapticError("a")]), "a"),
    ],
)
def test_errors_say_what_happened_without_the_notation_of_python(error: BaseException, text: str) -> None:
    assert text_of(error) == text
