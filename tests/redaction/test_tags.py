"""Tags of templates are read also where they do not compile."""

from haptic_trio.redaction.tags import literals_in, read_tags, strings_in


def test_tags_are_found_outside_of_comments_and_raw_blocks() -> None:
    source = "{# {{ a }} #}{{ b }}{% raw %}{{ c }}{% endraw %}{%- set d = {'e': {}} -%}{{ f"
    assert [tag.tokens[0].text for tag in read_tags(source)] == ["b", "set", "f"]


def test_keys_of_mappings_are_literals_unless_they_are_names_of_secrets() -> None:
    source = "{% set a = {'k': b['x'], 'token': 'v'} %}"
    (tag,) = read_tags(source)

    assert [source[start:end] for start, end in strings_in(tag.tokens)] == ["'v'"]
    assert sorted(source[start:end] for start, end in literals_in(tag.tokens)) == ["'k'", "'v'"]
