import re
from collections.abc import Callable
from pathlib import Path

import pytest

from haptic_trio.dataplane.binary import HaproxyVersion
from haptic_trio.haproxy.config.parser import ConfigSyntaxError, parse_config
from haptic_trio.haproxy.grammar.keywords import (
    Keywords,
    groups_of_dump,
    key_of,
    keywords_of,
    shipped_keywords,
    table_of,
    versions_that_know,
)
from tools.keywords.dump import read_groups, read_listing

Check = Callable[..., tuple[bool, str]]

DUMP = """\
# List of registered ACL keywords:
new_beg = new.fetch -m beg
# List of registered configuration keywords:
global
\tnew-word
listen
\tnew-line
\toption new-option [ FE ]
\thttp-request new-action*
\tserver <name> <addr> new-server +2
\tbind <addr> ssl new-bind
# List of registered CLI keywords:
\tnot this
# List of registered sample converter functions:
newer(string,string[,integer]): str => str
# List of registered filter names:
new-filter [NEW]
# List of registered sample fetch functions:
#  / / /
# | | |
[ Y Y . ] new.fetch(integer[,table]): bool
# List of registered service names:
new-service
"""
NEW = """\
global
  new-word
listen l
  mode http
  new-line
  option new-option
  filter new-filter
  acl a new_beg x
  acl b new.fetch(1),newer(a,b,1) x
  http-request new-action(1) x
  bind 127.0.0.1:1 new-bind
  server s 127.0.0.1:1 new-server a b check
"""


def _problems(text: str, keywords: Keywords) -> list[str]:
    try:
        parse_config(text, keywords=keywords)
    except ConfigSyntaxError as exc:
        return [f"{problem.message} ({problem.hint})" for problem in exc.problems]
    return []


def test_what_a_dump_lists_is_known_in_addition() -> None:
    assert len(_problems(NEW, shipped_keywords())) == 9
    assert _problems(NEW, shipped_keywords().with_dump(DUMP)) == []
    assert _problems(NEW, keywords_of("9.9", DUMP)) == []
    assert "not" not in groups_of_dump(DUMP)


def test_several_targets_together_know_what_any_of_them_knows() -> None:
    both = keywords_of("2.8").with_dump(DUMP)
    assert both.sections["global"] > keywords_of("2.8").sections["global"]
    assert both.with_dump(DUMP) == both


@pytest.mark.parametrize(
    ("version", "text", "hint"),
    [
        ("2.8.5", "global\n  stats-file /tmp/x\n", "HAProxy 3.2 and 3.4 know it"),
        ("2.8.5", "global\n  expose-experimental-directives\ncrt-store x\n", "HAProxy 3.2 and 3.4 know it"),
        ("3.2", "frontend f\n  bind 127.0.0.1:1 ssl ktls on\n", "HAProxy 3.4 knows it"),
        ("3.4", "global\nprogram p\n", "HAProxy 2.8 and 3.2 know it"),
        ("2.8", "listen l\n  mode http\n  http-request pause 1s\n", "HAProxy 3.2 and 3.4 know it"),
        ("2.8", "listen l\n  acl a fc.timer.total gt 1\n", "HAProxy 3.2 and 3.4 know it"),
        ("3.4", "global\n  maxcon 1\n", "did you mean 'maxconn'?"),
    ],
)
def test_a_word_that_only_another_version_knows_is_rejected_and_that_version_named(
    version: str, text: str, hint: str
) -> None:
    problems = _problems(text, keywords_of(version))
    assert hint in problems[0], problems
    assert versions_that_know("global", "maxconn") == ("2.8", "3.2", "3.4")


@pytest.mark.parametrize(
    ("version", "known", "unknown"),
    [
        ("2.6", (), ("stats-file",)),
        ("2.8.25", (), ("stats-file",)),
        ("3.0", ("stats-file",), ("tune.defaults.purge",)),
        ("3.3.1", ("stats-file", "tune.defaults.purge"), ()),
        ("3.5-dev5", ("stats-file", "tune.defaults.purge"), ("no-quic",)),
    ],
)
def test_a_version_without_a_table_of_its_own_has_what_its_neighbours_know(
    version: str, known: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    words = keywords_of(version).sections["global"]
    assert set(known) <= words
    assert not set(unknown) & words


def test_a_version_beyond_the_tables_is_not_held_to_their_numbers_of_words() -> None:
    text = "global\n  maxconn 10 and more\n"
    assert _problems(text, keywords_of("3.5")) == []
    assert len(_problems(text, keywords_of("3.4"))) == 1


def test_of_several_targets_the_one_that_takes_most_words_counts() -> None:
    text = "global\n  set-dumpable libs\nlisten l\n  option tcplog clf\n"
    assert len(_problems(text, keywords_of("2.8"))) == 2
    for version in ("3.0", "3.2", "3.4"):
        assert _problems(text, keywords_of(version)) == []
    assert _problems(text, shipped_keywords()) == []


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("maxconn 10", "maxconn"),
        ("timeout client 5s", "timeout client"),
        ("http-request set-var(txn.x) src", "http-request set-var*"),
        ("tcp-request content accept", "tcp-request content accept"),
        ("tcp-request inspect-delay 5s", "tcp-request inspect-delay"),
        ("option", "option"),
    ],
)
def test_the_words_that_name_what_follows(line: str, key: str) -> None:
    assert key_of(tuple(line.split())) == tuple(key.split())


@pytest.mark.haproxy
def test_the_tables_are_what_this_version_of_haproxy_says(
    haproxy_binary: Path, haproxy_version: HaproxyVersion
) -> None:
    shipped = table_of(".".join(map(str, haproxy_version.number[:2])))
    if not shipped:
        pytest.skip(f"no table is of HAProxy {haproxy_version.text}")
    found = read_groups(haproxy_binary, shapes=False)
    # Builds differ in what they include; what is common to them must be in the tables, and nothing else may be new.
    assert {group: words - shipped[group] for group, words in found.items() if words - shipped[group]} == {}
    assert {
        group: words - found[group] for group, words in shipped.items() if group != "shape" and words - found[group]
    } == {}


@pytest.mark.haproxy
def test_nothing_that_this_haproxy_lists_is_rejected(haproxy_binary: Path, haproxy_version: HaproxyVersion) -> None:
    listing = read_listing(haproxy_binary)
    keywords = keywords_of(haproxy_version.text, listing)
    listed = groups_of_dump(listing)
    assert len(listed["global"]) > 50
    assert set(listed["global"]) <= keywords.sections["global"]
    assert set(listed["proxy"]) <= keywords.sections["listen"]
    assert set(listed["option"]) <= keywords.options
    assert all(set(listed[rule_set]) <= actions for rule_set, actions in keywords.rules.items())


@pytest.mark.haproxy
@pytest.mark.parametrize("keyword", ["http-request", "http-response", "http-after-response"])
def test_every_action_that_haproxy_offers_is_known(
    check_config: Check, haproxy_version: HaproxyVersion, keyword: str
) -> None:
    _, output = check_config(f"listen l\n  mode http\n  {keyword} no-such-action\n")
    (offer,) = (line for line in output.splitlines() if f"'{keyword}' expects" in line)
    offered = [name.replace("(*)", "*") for name in re.findall(r"'([^']+)'", offer.partition("expects")[2])]
    assert len(offered) > 20
    assert set(offered) - {"no-such-action"} <= keywords_of(haproxy_version.text).rules[keyword]


@pytest.mark.haproxy
@pytest.mark.parametrize("group", ["fetch", "converter"])
def test_haproxy_agrees_on_every_fetch_and_converter_without_arguments(
    check_config: Check, haproxy_version: HaproxyVersion, group: str
) -> None:
    keywords = keywords_of(haproxy_version.text)
    known = keywords.fetches if group == "fetch" else keywords.converters
    names = sorted(name for name in known if versions_that_know(group, name))
    lines = [f"  acl a {'' if group == 'fetch' else 'str(x),'}{name} -m found" for name in names]
    wrongly: list[str] = []
    for start in range(0, len(lines), 40):
        batch = lines[start : start + 40]
        text = "frontend f\n  mode http\n" + "".join(f"{line}\n" for line in batch)
        _, output = check_config(text)
        rejected = {int(number) - 3 for number in re.findall(r"parsing \[haproxy\.cfg:(\d+)\]", output)}
        for index, line in enumerate(batch):
            # What we reject, it rejects; it knows more about types than we do.
            if _problems(f"frontend f\n  mode http\n{line}\n", keywords) and index not in rejected:
                wrongly.append(line)
    assert wrongly == []
    assert len(names) > 80
