"""Values as annotations spell them: what each means, and what is rejected."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.filters import values
from haptic_trio.templating.filters.emit import EmitError


@pytest.mark.parametrize(("value", "meant"), [("true", True), ("On", True), (False, False), ("no", False)])
def test_a_switch_says_yes_or_no(value: object, meant: bool) -> None:
    assert values.switch(value) is meant


@pytest.mark.parametrize(
    ("filter_name", "value", "expected"),
    [
        ("network", "10.1.2.3/8", "10.0.0.0/8"),
        ("network", "192.0.2.1", "192.0.2.1/32"),
        ("network", "2001:DB8::1/32", "2001:db8::/32"),
        ("seconds", "60", "60s"),
        ("seconds", "2m", "2m"),
        ("milliseconds", "1500", "1500ms"),
        ("whole_seconds", "1h", "3600"),
        ("whole_seconds", "7", "7"),
        ("table_size", "100k", "100k"),
        ("byte_count", "8m", 8 << 20),
        ("byte_count", 0, 0),
        ("rate_period", "1500", "1500ms"),
        ("rate_period", "100ms", "100ms"),
        ("words", " a , ,b,", ["a", "b"]),
        ("backreferences", r"/\1/x", "/$1/x"),
        ("unquoted", '"a b"', "a b"),
        ("unquoted", '"', '"'),
        ("redirect_target", "https://a.example.com/100%25$request_uri", "'https://a.example.com/100%%25%[pathq]'"),
        ("host_and_port", "A.example.com:81", "a.example.com:81"),
        ("cookie_path", "/a", "'Path=/a'"),
        ("cookie_domain", ".Example.com", "example.com"),
        ("realm", "it's ours", "'it'\\''s ours'"),
    ],
)
def test_a_value_means_one_thing(filter_name: str, value: object, expected: object) -> None:
    assert values.VALUES[filter_name](value) == expected


@pytest.mark.parametrize(
    ("filter_name", "value"),
    [
        ("switch", "maybe"),
        ("switch", ""),
        *(("rate_period", short) for short in ("0", "0s", "0m0s", "0us", "99ms", "50", "1us", "-1s", "soon")),
        ("network", "10.0.0.0/33"),
        ("network", "fe80::1%eth0"),
        ("network", "10.0.0.1 10.0.0.2"),
        ("seconds", "-1"),
        ("seconds", "9999999d"),
        ("seconds", "٣"),
        ("whole_seconds", "1y"),
        ("table_size", "0"),
        ("table_size", "1g"),
        ("byte_count", "1025g"),
        ("byte_count", "8 m"),
        ("backreferences", "/$1"),
        ("redirect_target", "javascript:alert(1)"),
        ("redirect_target", "https://a/$unknown"),
        ("redirect_target", "https://a/\nx"),
        ("redirect_target", "/a b"),
        ("path_pattern", "/a.*b"),
        ("path_pattern", "/(a+)+$"),
        ("path_pattern", "a(.*)"),
        ("path_pattern", "/[a-z]+"),
        ("realm", 'a"b'),
        ("realm", "100%"),
        ("cookie_path", "/a;Secure"),
        ("cookie_domain", "*.example.com"),
        ("cookie_domain", "..example.com"),
        ("host_and_port", "a:0"),
        ("host_and_port", "a b"),
        ("htpasswd", "joe:secret"),
        ("htpasswd", "joe:$2y$14$abcdefghijklmnopqrstuuPZ5yT1f5wJxjVQw3nD2r6x4d1dS0W3K"),
        ("htpasswd", "joe:$apr1$abcdefgh$abcdefghijklmnopqrstuv"),
        ("htpasswd", f"joe:$6$rounds=999999999$abc${'a' * 86}"),
        ("htpasswd", f"a:$6$abc${'a' * 86}\na:$6$abc${'b' * 86}"),
        ("htpasswd", f"a b:$6$abc${'a' * 86}"),
        ("htpasswd", "# nobody"),
        ("htpasswd", "\n".join(f"u{n}:$6$abc${'a' * 86}" for n in range(1_001))),
    ],
)
def test_what_means_nothing_is_rejected(filter_name: str, value: object) -> None:
    with pytest.raises(EmitError):
        values.VALUES[filter_name](value)


def test_choices_are_named_when_there_is_none() -> None:
    assert values.choice("b", {"a": "x", "b": "y"}) == "y"
    with pytest.raises(EmitError, match="not one of a, b"):
        values.choice("c", ["b", "a"])


@pytest.mark.parametrize(
    ("written", "prefix", "path", "groups"),
    [
        ("/api(/|$)(.*)", "/api", "/api/x/y", ("/", "x/y")),
        ("/api(/|$)(.*)", "/api", "/api", ("", "")),
        ("/(.*)", "/", "/a/b", ("a/b",)),
        ("^/a.b/?(.*)", "/a.b", "/a.b/c", ("c",)),
        ("/plain", "/plain", "/plain/x", ("/",)),
    ],
)
def test_a_path_may_end_in_a_regular_expression(written: str, prefix: str, path: str, groups: tuple[str, ...]) -> None:
    pattern = values.path_pattern(written)
    found = re.match(pattern.regex[1:-1], path)

    assert pattern.prefix == prefix
    assert found is not None
    assert found.groups() == groups


def test_the_rest_of_a_path_is_not_an_expression() -> None:
    assert not re.match(values.path_pattern("/a.b(/|$)(.*)").regex[1:-1], "/aXb/c")


def test_a_new_path_has_the_groups_of_the_old_one_and_nothing_for_others() -> None:
    assert values.rewrite_target("/x/$2", 2) == "'/x/\\2'"
    assert values.rewrite_target("/x/$3", 2) == "'/x/'"
    for rejected in ("x", "/?a=$1", "/$name", "/$0", "/\\1", "/a b"):
        with pytest.raises(EmitError):
            values.rewrite_target(rejected, 2)


@given(st.sampled_from(["redirect_target", "path_pattern", "origin_pattern", "realm", "cookie_path"]), st.text())
def test_whatever_is_not_rejected_is_one_word_in_strong_quotes(filter_name: str, value: str) -> None:
    try:
        result = values.VALUES[filter_name](value)
    except EmitError:
        return
    text = result.regex if isinstance(result, values.PathPattern) else result
    assert re.fullmatch(r"'([^'\n\r\0]|'\\'')*'", text)


@pytest.mark.parametrize(
    ("name", "is_removed"),
    [
        ("x-real-ip", True),
        ("x_real_ip", True),
        ("x-real_ip", True),
        ("x-real-ipx", False),
        ("ax-real-ip", False),
        ("x-forwarded-", True),
        ("x_forwarded_for-any", True),
        ("x-forwarded", False),
        ("forwarded", True),
        ("any_name", False),
    ],
)
def test_names_of_headers_are_those_with_underscores_too(name: str, is_removed: bool) -> None:
    pattern = values.header_names(["X-Real-IP", "X-Forwarded-*", "X-Forwarded-For", "Forwarded"])

    assert bool(re.search(pattern.strip("'"), name)) == is_removed


def test_any_name_with_an_underscore_can_be_meant() -> None:
    pattern = values.header_names(["*_*", "X-A"]).strip("'")

    assert [name for name in ("a_b", "_", "x-a", "x_a", "a-b") if re.search(pattern, name)] == [
        "a_b",
        "_",
        "x-a",
        "x_a",
    ]


def test_respelled_names_alone_can_be_meant() -> None:
    pattern = values.header_names(["X-Real-IP", "X-Forwarded-*", "Forwarded"], respelled=True).strip("'")
    found = ("x_real_ip", "x-real_ip", "x_forwarded-for", "x-forwarded-a_b")
    others = ("x-real-ip", "x-forwarded-for", "forwarded", "x_other", "forwarded_for")

    assert [name for name in (*found, *others) if re.search(pattern, name)] == list(found)


def test_names_with_other_characters_have_the_same_spellings_and_are_not_meant_as_given() -> None:
    names = ["X_Client", "X.Client-IP", "_B", "X_", "X-Real-IP", "Forwarded"]
    pattern = values.header_names(names, respelled=True).strip("'")
    found = ("x-client", "x.client", "x.client_ip", "x-client-ip", "-b", "x-", "x_real-ip")
    others = ("x_client", "x.client-ip", "_b", "x_", "x-real-ip", "forwarded", "xclient", "x-client-id")
    plain = values.header_names(names).strip("'")

    assert [name for name in (*found, *others) if re.search(pattern, name)] == list(found)
    assert [name for name in (*found, *others) if not re.search(plain, name)] == ["xclient", "x-client-id"]


def test_other_spellings_of_further_names_can_be_meant() -> None:
    pattern = values.header_names(["X-Real-IP"], others_of=["Content-Length"]).strip("'")
    found = ("x-real-ip", "x_real_ip", "content_length", "content.length", "content~length")
    others = ("content-length", "x-content-length", "content_length_", "length")

    assert [name for name in (*found, *others) if re.search(pattern, name)] == list(found)


TOKEN = "!#$%&'*+-.^_`|~0aZ"


def test_every_character_of_a_name_for_several_means_itself() -> None:
    names = [f"{one}x{one}*y" for one in TOKEN if one not in "*-"]
    found = re.compile(values.header_names(names).replace("'\\''", "\0").strip("'").replace("\0", "'"))

    assert [name for name in names if not found.search(name.lower())] == []
    assert not any(found.search(name) for name in ("xy", "!xy", "x!y", "!x#y", "", "!", "!x!"))


@pytest.mark.parametrize("names", [[], ["a b"], [""], ['a"'], ["a:b"], ["a\n"], ["(a)"], ["a{2}"], ["\u212a"]])
def test_what_is_not_a_name_of_a_header_is_rejected(names: list[str]) -> None:
    with pytest.raises(EmitError):
        values.header_names(names)
