import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from haptic_trio.haproxy.keywords import parse_keyword_dump, shipped_keywords
from haptic_trio.haproxy.parser import ConfigSyntaxError, parse_config
from haptic_trio.haproxy.unlisted import PROXY_KINDS

Check = Callable[..., tuple[bool, str]]

HEAD = re.compile(r"^== (?P<verdict>valid|invalid|only haproxy|only we): (?P<name>.*)\n", re.MULTILINE)


class Sample(NamedTuple):
    verdict: str
    name: str
    text: str


def _samples(path: Path) -> Iterator[Sample]:
    corpus = path.read_text()
    heads = list(HEAD.finditer(corpus))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        text = corpus[head.end() : following.start() if following else len(corpus)]
        if "carriage return" in head["name"]:
            text = text.replace("\n", "\r\n")
        yield Sample(head["verdict"], head["name"], text)


CORPUS = Path(__file__).with_name("corpus")
SAMPLES = [sample for path in sorted(CORPUS.glob("*.txt")) for sample in _samples(path)]


def _problems(text: str) -> list[str]:
    try:
        parse_config(text)
    except ConfigSyntaxError as exc:
        return [str(problem) for problem in exc.problems]
    return []


def _refused(section: str, line: str) -> tuple[int, str]:
    with pytest.raises(ConfigSyntaxError) as caught:
        parse_config(f"{section}\n{line}\n")
    (problem,) = caught.value.problems
    return problem.column, f"{problem.message} ({problem.hint})"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.verdict}: {sample.name}")
def test_our_parser_agrees_with_the_corpus(sample: Sample) -> None:
    problems = _problems(sample.text)
    if sample.verdict in {"valid", "only haproxy"}:
        assert problems == []
    else:
        assert len(problems) == 1


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_2_8")
def test_real_haproxy_agrees_with_the_corpus(check_config: Check) -> None:
    surprises = []
    for sample in SAMPLES:
        accepted, output = check_config(sample.text)
        if accepted != (sample.verdict in {"valid", "only we"}):
            surprises.append((sample.verdict, sample.name, output))
    assert surprises == []
    assert len(SAMPLES) >= 100


@pytest.mark.parametrize(
    ("section", "line", "column", "hint"),
    [
        ("global", "  maxcon 10", 3, "did you mean 'maxconn'?"),
        ("backend b", "\tbalence roundrobin", 2, "did you mean 'balance'?"),
        ("backend b", "  nbthread 4", 3, "sections of kind global"),
        ("backend b", "  option  httpcheck", 11, "did you mean 'httpchk'?"),
        ("frontend f", "  http-request 'set-heder' a b", 16, "did you mean 'set-header'?"),
        ("backend b", "  server s 127.0.0.1:1 'a b' check", 24, "unknown server option"),
        ("backend b", "  server s 127.0.0.1:1 chek", 24, "did you mean 'check'?"),
        ("global", "bakcend b", 1, "did you mean 'backend'?"),
        ("defaults", "  http-request deny", 3, "give the section a name"),
    ],
)
def test_a_wrong_word_is_named_with_its_column_and_the_nearest_right_one(
    section: str, line: str, column: int, hint: str
) -> None:
    found, text = _refused(section, line)
    assert found == column
    assert hint in text


def test_words_that_refer_to_the_environment_are_not_judged() -> None:
    assert _problems('backend "$NAME"\n  option "$OPTION"\n  server "$A" "$B" "$C"\n  "$KEYWORD" y\n') == []


def test_keywords_of_a_newer_haproxy_can_be_added() -> None:
    dump = (
        "# List of registered configuration keywords:\nglobal\n\tnew-word\n"
        "listen\n\tnew-line\n\toption new-option [ FE ]\n"
        "\thttp-request new-action*\n\tserver <name> <addr> new-server +2\n\tbind <addr> ssl new-bind\n"
        "# List of registered CLI keywords:\n\tnot this\n"
    )
    text = (
        "global\n  new-word\nlisten l\n  new-line\n  option new-option\n  http-request new-action(1) x\n"
        "  bind 127.0.0.1:1 new-bind\n  server s 127.0.0.1:1 new-server a b check\n"
    )
    assert len(_problems(text)) == 6
    parse_config(text, keywords=shipped_keywords().with_dump(dump))


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_2_8")
def test_the_shipped_table_is_what_this_version_of_haproxy_lists(check_config: Check) -> None:
    _, output = check_config("", "-dKall", "-q")
    listed = parse_keyword_dump(output)
    shipped = shipped_keywords()
    assert len(listed.global_words) > 50
    assert set(listed.global_words) <= shipped.sections["global"]
    assert all(set(listed.proxy_words) <= shipped.sections[kind] for kind in PROXY_KINDS)
    assert set(listed.options) <= shipped.options
    assert all(set(actions) <= shipped.rules[rule_set] for rule_set, actions in listed.rules.items())
    assert listed.bind.items() <= shipped.bind.items()
    assert listed.server.items() <= shipped.server.items()
    assert msgspec.structs.replace(shipped) == shipped.with_dump(output)


@pytest.mark.haproxy
@pytest.mark.parametrize("keyword", ["http-request", "http-response", "http-after-response"])
@pytest.mark.usefixtures("haproxy_2_8")
def test_every_action_that_haproxy_offers_is_known(check_config: Check, keyword: str) -> None:
    _, output = check_config(f"listen l\n  mode http\n  {keyword} no-such-action\n")
    (offer,) = (line for line in output.splitlines() if f"'{keyword}' expects" in line)
    offered = [name.replace("(*)", "*") for name in re.findall(r"'([^']+)'", offer.partition("expects")[2])]
    assert len(offered) > 20
    assert set(offered) - {"no-such-action"} <= shipped_keywords().rules[keyword]
