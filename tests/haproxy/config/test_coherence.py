"""Names that may be repeated, by version of HAProxy."""

import pytest

from haptic_trio.haproxy.config.parser import ConfigSyntaxError, SectionCache, parse_config
from haptic_trio.haproxy.config.servers import ServerSettings
from haptic_trio.haproxy.grammar.keywords import keywords_of, shipped_keywords

OLD, MIDDLE, NEW = "2.8.25", "3.2.26", "3.4.7"

NAMES = {
    "frontend a\nbackend a\n": {OLD, MIDDLE},
    "backend a\nfrontend a\n": {OLD, MIDDLE},
    "listen a\n  bind :1\nbackend a\n": set(),
    "defaults a\nbackend a\n": {OLD, MIDDLE},
    "backend a\ndefaults a\n": {OLD, MIDDLE},
    "defaults a\ndefaults a\nlisten a\n  bind :1\n": {OLD, MIDDLE},
    "log-forward a\nfrontend a\n": set(),
    "backend a\nlog-forward a\n": set(),
    "crt-store a\ncrt-store a\n": {MIDDLE, NEW},
    "peers a\npeers a\n": set(),
    "userlist a\nuserlist a\n": {OLD, MIDDLE, NEW},
    "defaults d\ndefaults d\n": {OLD, MIDDLE, NEW},
    "defaults d\ndefaults d\nbackend a from d\n": {NEW},
    "defaults d\nbackend a from d\ndefaults d\n": {OLD},
    "defaults d\nbackend a\ndefaults d\n": {OLD, MIDDLE, NEW},
    "defaults d\ndefaults d from d\n": {OLD},
}


@pytest.mark.parametrize("version", [OLD, MIDDLE, NEW])
@pytest.mark.parametrize("text", NAMES)
def test_names_may_be_repeated_where_the_version_takes_that(text: str, version: str) -> None:
    keywords, cache = keywords_of(version), SectionCache()
    for _ in range(2):
        is_taken = True
        try:
            parse_config(text, keywords=keywords, cache=cache)
        except ConfigSyntaxError:
            is_taken = False
        assert is_taken is (version in NAMES[text])


def test_what_is_replaced_is_said_to_be_in_use_and_where() -> None:
    with pytest.raises(ConfigSyntaxError) as caught:
        parse_config("defaults d\nbackend a from d\ndefaults d\n", keywords=keywords_of(NEW))

    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (3, 10)
    assert "in use" in problem.message
    assert "line 2" in problem.hint


def test_a_dump_of_the_binary_does_not_hide_its_version() -> None:
    assert keywords_of(NEW, "# List of registered configuration keywords:\n").version == (3, 4)
    assert shipped_keywords().version == ()


@pytest.mark.parametrize(
    ("text", "version", "algorithm"),
    [
        ("defaults d\n  balance first\ndefaults d\n  balance source\nbackend a from d\n", NEW, "source"),
        ("defaults d\n  balance first\nbackend a from d\ndefaults d\n  balance source\n", OLD, "first"),
        ("defaults d\n  balance first\nbackend b\ndefaults d\n  balance source\nbackend a from d\n", NEW, "source"),
    ],
)
def test_of_defaults_of_one_name_the_last_above_counts(text: str, version: str, algorithm: str) -> None:
    config = parse_config(text, keywords=keywords_of(version))
    section = config.find("backend", "a")
    assert section is not None

    balance = ServerSettings(config.bases, section).last("balance")

    assert balance is not None
    assert balance.words[1] == algorithm
