"""A path has one spelling in maps, and requests for the path are found under it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.request_paths import Readings, is_ambiguous_path, path_key, plain_path, readings

PATHS = st.lists(
    st.sampled_from(["/", "a", "%61", "%2f", ".", "..", ";", "%40", "%C3%A9", "é", "%20", "\\"]), max_size=9
)


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/a/%62%7e", "/a/b~"),
        ("/%40/%3A", "/@/:"),
        ("/caf%c3%a9/é", "/café/é"),
        ("/%2f%5c%3b%3f%23%25%20", "/%2F%5C%3B%3F%23%25%20"),
        ("/%e9/%00", "/%E9/%00"),
        ("a|host.example.com|/%61/", "a|host.example.com|/a/"),
    ],
)
def test_a_plain_path_encodes_nothing_without_need(path: str, plain: str) -> None:
    assert plain_path(path) == plain
    assert plain_path(plain) == plain


@pytest.mark.parametrize("path", ["/a;b", "/a%2fb", "/a%5Cb", "/a.", "/a./b", "/a%20/", "/%00", "/%E9", "/a b", "a"])
def test_a_key_that_could_mean_two_paths_is_rejected(path: str) -> None:
    with pytest.raises(EmitError):
        path_key(path)


def test_the_beginning_of_a_path_may_end_in_a_dot() -> None:
    assert path_key("/.", beginning=True) == "/."
    assert path_key("/.git/%61") == "/.git/a"


def test_paths_of_routes_that_no_request_is_routed_by_are_known() -> None:
    assert [path for path in ("/a", "/a/.b/c%20d", "/a;b", "/a//b", "/a%2Fb", "/a./") if is_ambiguous_path(path)] == [
        "/a;b",
        "/a//b",
        "/a%2Fb",
        "/a./",
    ]


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/a", ("/a", "/a")),
        ("//a/./b/../%63", ("/a/c", "/a/c")),
        ("/a%2fb;c/d.", ("/a%2fb;c/d.", "/a/b/d")),
        ("/a%2f../b", ("/a%2f../b", None)),
        ("/a;b%2fc", None),
        ("/a;b/c\\d", ("/a;b/c\\d", "/a/c/d")),
        ("/a%zz", None),
        ("/a%00", None),
        ("a", None),
    ],
)
def test_requests_are_read_literally_and_with_all_separators(path: str, read: tuple[str, str | None] | None) -> None:
    assert readings(path) == (None if read is None or read[1] is None else Readings(read[0], read[1]))


@pytest.mark.parametrize(
    ("path", "beginnings"),
    [
        ("/a/b;c/d", ["/a/b;c/d/", "/a/b/", "/a/b/d/"]),
        ("/a..%20b/c%2Fd/e", ["/a..%20b/c%2Fd/e/", "/a..%20b/c/", "/a..%20b/c/d/", "/a..%20b/c/d/e/"]),
        ("/a../b", ["/a../b/", "/a/", "/a/b/"]),
    ],
)
def test_beginnings_are_what_an_application_may_read_that_takes_some_characters_for_separators(
    path: str, beginnings: list[str]
) -> None:
    read = readings(path)
    assert read is not None
    assert list(dict.fromkeys(read.beginnings())) == beginnings


def test_whole_paths_are_read_up_to_the_first_separator_with_and_without_a_slash() -> None:
    assert Readings("/a/;x/b", "/a/b").exact_paths()[0] == "/a/"
    assert {"/a", "/a/", "/a/b"} <= {*Readings("/a%2F;/b", "/a/b").exact_paths()}
    assert "/a" not in Readings("/a/b%2Fc", "/a/b/c").exact_paths()


@given(PATHS)
def test_a_key_is_found_by_a_request_for_it(pieces: list[str]) -> None:
    path = "/" + "".join(pieces)
    try:
        key = path_key(path)
    except EmitError:
        return
    read = readings(path)
    if read is not None and not {".", "..", ""} & set(path[1:].split("/")):
        assert read == Readings(key, key)
