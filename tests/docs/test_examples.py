"""The program accepts every YAML example of the pages."""

from pathlib import Path

import pytest

from tests.docs.configurations import PART, problems_of
from tests.docs.markdown import DOCS, ROOT, Block, all_pages, blocks_of, shown
from tests.support.processes.haproxy import haproxy_binary

__all__ = ["haproxy_binary"]

YAML_PAGES = [page for page in all_pages() if any(block.language == "yaml" for block in blocks_of(page))]


def yaml_block(text: str, argument: str = "") -> Block:
    return Block(page=ROOT / "docs" / "page.md", line=1, language="yaml", argument=argument, text=text)


@pytest.mark.process
@pytest.mark.parametrize("page", YAML_PAGES, ids=shown)
async def test_yaml_is_taken(page: Path, haproxy_binary: Path, tmp_path: Path) -> None:
    problems = [
        problem
        for block in blocks_of(page)
        if block.language == "yaml"
        for problem in await problems_of(block, haproxy_binary, tmp_path)
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "argument", "words"),
    [
        ("templating: {librarys: []}\n", "", "unknown field"),
        ("templateSnippets: {frontend-rules-x: {template: '{{ x | nix }}'}}\n", "", "no filter"),
        ("validationTests: {a: {assertions: [{type: contains, text: nothing-like-it}]}}\n", "", "nothing-like-it"),
        ("anything: 1\n", "", "neither manifests nor a configuration"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {}\n", "", "name"),
        ("haproxy: {replica: 1}\n", "values.yaml", "haproxy.replica"),
        ("name: mine\n", "library.yaml", "description"),
        ("a: [\n", "", "page.md"),
    ],
)
async def test_an_example_that_is_wrong_is_found(
    text: str, argument: str, words: str, haproxy_binary: Path, tmp_path: Path
) -> None:
    [problem, *_] = await problems_of(yaml_block(text, argument), haproxy_binary, tmp_path)
    assert words in problem


async def test_a_part_is_left_alone(haproxy_binary: Path, tmp_path: Path) -> None:
    assert await problems_of(yaml_block("a: [\n", PART), haproxy_binary, tmp_path) == []
    assert DOCS.is_dir()
