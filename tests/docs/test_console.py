"""The reader of the pages: it finds out when a page and the program differ."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.console import BY_HAND, MismatchError, Session, apply_diff, steps_of
from tests.docs.markdown import Block, anchors_of, blocks_of, links_of

pytestmark = pytest.mark.process


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session(tmp_path) as session:
        yield session


def block(text: str, argument: str = "", language: str = "console") -> Block:
    return Block(page=Path("page.md"), line=1, language=language, argument=argument, text=text)


def test_output_that_is_as_shown_passes(session: Session) -> None:
    session.follow([block("$ printf 'one\\ntwo\\nthree 3 ms\\n'\none\n…\nthree … ms\n$ true\n")])


@pytest.mark.parametrize("shown", ["one\n", "one\ntwo\nthree\n", "two\none\n", "one\n…\none\n", "on…\n"])
def test_output_that_is_not_as_shown_is_found(session: Session, shown: str) -> None:
    with pytest.raises(MismatchError, match=r"page\.md:1"):
        session.follow([block(f"$ printf 'one\\ntwo\\n'\n{shown}")])


def test_a_command_goes_on_behind_a_backslash(session: Session) -> None:
    session.follow([block("$ echo one \\\n    two\none two\n")])


def test_files_are_written_changed_and_read(session: Session) -> None:
    session.follow(
        [
            block("a: 1\nb: 2\n", "site/x.yaml", "yaml"),
            block(" a: 1\n-b: 2\n+b: 3\n", "site/x.yaml", "diff"),
            block("c: 4\n", "+site/x.yaml", "yaml"),
            block("$ cat site/x.yaml\na: 1\nb: 3\nc: 4\n"),
        ]
    )


def test_a_change_of_lines_that_are_not_there_is_found() -> None:
    with pytest.raises(MismatchError, match="0 times"):
        apply_diff("a: 1\n", "-b: 2\n+b: 3\n")


def test_later_output_of_a_terminal_is_awaited(session: Session) -> None:
    command = "$ bash -c 'echo first; until [ -e go ]; do sleep 0.01; done; echo second; exec sleep 60'\nfirst\n"
    session.follow(
        [block(command, "server"), block("$ touch go\n"), block("second\n", "server"), block("^C\n", "server")]
    )


def test_missing_output_of_a_terminal_is_found(session: Session) -> None:
    with pytest.raises(MismatchError, match="second"):
        session.follow([block("$ echo first\nsecond\n", "server")])


def test_what_is_for_readers_alone_is_not_run(session: Session) -> None:
    session.follow([block("$ exit 1\nnothing\n", BY_HAND)])


def test_ports_of_the_program_are_learnt_and_used(session: Session) -> None:
    session.follow([block("$ echo 8080 127.0.0.1:$((40000 + 1)) 40001\n… 127.0.0.1:8443 8443\n$ echo 8443\n8443\n")])


def test_steps_have_a_command_and_its_output() -> None:
    assert steps_of("later\n$ a \\\n  b\none\n\n$ c\n") == [("", ["later"]), ("a b", ["one", ""]), ("c", [])]


def test_blocks_links_and_anchors_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# The `one` & only\n\n1. Item\n   ```yaml site/a.yaml\n   a: [x](y)\n   ```\n## Again\n## Again\n"
        "See [a page](b.md#c), `[no](link)` and ![image](c.png).\n"
    )
    assert [(found.language, found.argument, found.text) for found in blocks_of(page)] == [
        ("yaml", "site/a.yaml", "a: [x](y)\n")
    ]
    assert [target for _line, target in links_of(page)] == ["b.md#c", "c.png"]
    assert anchors_of(page) == {"the-one--only", "again", "again-1"}
