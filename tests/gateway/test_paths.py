"""The normal form of paths, of any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.gateway.paths import normal_path

parts = st.sampled_from(
    ["/", "a", ".", "%", "%61", "%2F", "%2f", "%C3%A9", "%c3", "%A9", "é", "\ud800", "%40", "|", "%00"]
)


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/admin", "/admin"),
        ("/%61dmin", "/admin"),
        ("/%7Ea/%7eb", "/~a/~b"),
        ("/a%26b%40c", "/a&b@c"),
        ("/caf%c3%a9", "/café"),
        ("/a%2fb%3b%20%25", "/a%2Fb%3B%20%25"),
        ("/%zz", "/%zz"),
        ("/%c3", "/%C3"),
    ],
)
def test_needless_escapes_are_decoded(path: str, normal: str) -> None:
    assert normal_path(path) == normal


@given(st.lists(parts).map("".join))
def test_a_normal_form_stays_and_a_slash_behind_it_changes_nothing(path: str) -> None:
    normal = normal_path(path)

    assert normal_path(normal) == normal
    assert normal_path(path + "/") == normal + "/"
