"""Pages become what MkDocs shows as forges do."""

import pytest

from tools.site.markdown import has_diagram, translate


def unchanged(target: str) -> str:
    return target


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("- a\n  b\n  - c\n    d\n- e\n", "- a\n    b\n    - c\n        d\n- e\n"),
        ("1. a\n   ```yaml\n   b: 1\n   ```\n2. c\n", "1. a\n    ```yaml\n    b: 1\n    ```\n\n2. c\n"),
        ("9. a\n\n   b\n10. c\n", "9. a\n\n    b\n\n10. c\n"),
        ("a:\n- b\n", "a:\n\n- b\n"),
        ("a:\n| b |\n|---|\n", "a:\n\n| b |\n|---|\n"),
        ("| a |\n|---|\n| `b\\|c` d\\|e |\n", "| a |\n|---|\n| `b|c` d\\|e |\n"),
        ("`a\\|b`\n", "`a\\|b`\n"),
    ],
    ids=[
        "nested list",
        "fence in a list",
        "item of two paragraphs",
        "list",
        "table",
        "pipe in a cell",
        "pipe elsewhere",
    ],
)
def test_blocks_are_written_as_python_markdown_reads_them(text: str, translated: str) -> None:
    assert translate(text, unchanged) == translated


def test_headings_get_the_anchors_of_forges() -> None:
    text = "# 1. A `b`: c_d\n\n## [Same](x.md)\n\n## Same\n\n```sh\n# no heading\n```\n"

    translated = translate(text, unchanged)

    assert translated == (
        "# 1. A `b`: c_d {#1-a-b-c_d}\n\n## [Same](x.md) {#same}\n\n## Same {#same-1}\n\n```sh\n# no heading\n```\n"
    )


@pytest.mark.parametrize(
    ("fence", "translated"),
    [
        ("```", "```text"),
        ("```console by hand", "```console"),
        ("```console controller", '```console title="terminal controller"'),
        ("```yaml site/config.yaml", '```yaml title="site/config.yaml"'),
        ("```yaml +site/config.yaml", '```yaml title="site/config.yaml"'),
        ("```yaml part", "```yaml"),
    ],
)
def test_a_fence_shows_its_file_or_terminal(fence: str, translated: str) -> None:
    assert translate(f"{fence}\nx\n```\n", unchanged) == f"{translated}\nx\n```\n"


def test_links_and_images_are_changed_outside_of_code_only() -> None:
    text = "[a](b.md) `[c](d.md)` ![e](f.png) [![g](h.png)](i.md) [`j`](k.md)\n\n```\n[l](m.md)\n```\n"

    translated = translate(text, str.upper)

    assert translated.splitlines()[0] == "[a](B.MD) `[c](d.md)` ![e](F.PNG) [![g](H.PNG)](I.MD) [`j`](K.MD)"
    assert "[l](m.md)" in translated


def test_a_diagram_is_found_where_it_is_a_block() -> None:
    assert has_diagram("a\n\n```mermaid\nflowchart LR\n```\n")
    assert not has_diagram("`mermaid`\n\n~~~text\n```mermaid\n~~~\n")
