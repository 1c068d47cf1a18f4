from pathlib import Path

import pytest

from haptic_trio.dataplane.binary import HaproxyVersion
from haptic_trio.haproxy.config.parser import ConfigSyntaxError, parse_config
from haptic_trio.haproxy.config.writer import write_config
from haptic_trio.haproxy.grammar.keywords import keywords_of
from tests.haproxy.corpus_cases import Sample, all_cases, samples
from tests.haproxy.corpus_verdicts import (
    PAGE,
    UNEXPLAINED,
    VERSIONS,
    accepted_by_area,
    explain,
    judge,
    read_accepted,
    read_disagreements,
    render_page,
)

CASES = all_cases()


def test_the_corpus_has_hundreds_of_cases_and_every_name_once() -> None:
    assert len(CASES) >= 500
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({case.area for case in CASES}) >= 20


@pytest.mark.parametrize("sample", list(samples()), ids=lambda sample: f"{sample.verdict}: {sample.name}")
def test_cases_written_by_hand_get_their_listed_verdict(sample: Sample) -> None:
    problems: tuple[object, ...] = ()
    try:
        parse_config(sample.text)
    except ConfigSyntaxError as exc:
        problems = exc.problems
    assert len(problems) == (0 if sample.verdict in {"valid", "only haproxy"} else 1), problems


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_written_configurations_read_back_as_the_same_model(version: str) -> None:
    keywords = keywords_of(version)
    read = 0
    for case in CASES:
        try:
            config = parse_config(case.text, keywords=keywords)
        except ConfigSyntaxError:
            continue
        again = parse_config(write_config(config), keywords=keywords)
        assert again == config or again.digest == config.digest, case.name
        assert [section.key for section in again.sections] == [section.key for section in config.sections]
        read += 1
    assert read >= 800


@pytest.mark.haproxy
def test_haproxy_and_the_parser_disagree_only_in_listed_cases(
    haproxy_binary: Path, haproxy_version: HaproxyVersion
) -> None:
    version = ".".join(map(str, haproxy_version.number[:2]))
    if version not in VERSIONS:
        pytest.skip(f"the tables are of HAProxy {', '.join(VERSIONS)}, this is {haproxy_version.text}")
    verdicts = judge(haproxy_binary, keywords_of(haproxy_version.text), CASES)
    listed = read_disagreements()[version]
    found = set(explain(verdicts))
    assert found - listed == set(), "a disagreement that is not listed"
    assert listed - found == set(), "listed, but they agree"
    assert accepted_by_area(verdicts) == read_accepted()[version]


def test_every_disagreement_has_a_reason() -> None:
    assert [one for found in read_disagreements().values() for one in found if one.reason == UNEXPLAINED] == []


def test_the_page_matches_the_tables() -> None:
    assert PAGE.read_text() == render_page(CASES)
