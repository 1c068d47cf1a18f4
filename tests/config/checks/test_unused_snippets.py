"""A snippet that no template includes is reported with the extension point that is meant."""

import pytest

from haptic_trio.config.checks.unused_snippets import find_unused_snippets
from haptic_trio.config.model import Config, Snippet
from haptic_trio.errors import Problem
from tests.support.components.rendering import library_config


def unused(**snippets: str) -> list[Problem]:
    """Return the warnings about the user's *snippets* (with `_` for `-`) over the library `base`."""
    own = {name.replace("_", "-"): Snippet(template=text) for name, text in snippets.items()}
    config = library_config("base", user=Config(template_snippets=own))
    return list(find_unused_snippets(config, own))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("frontend_rule_served_by", "did you mean `frontend-rules-served-by`? Snippets with the prefix"),
        ("globals_tune", "did you mean `global-tune`? Snippets with the prefix `global-` are included"),
        ("zzz", "begin its name with an extension point: `backends-`, `defaults-`"),
    ],
)
def test_unused_snippet_is_reported_with_the_nearest_extension_point(name: str, hint: str) -> None:
    (problem,) = unused(**{name: "http-request return"})

    written = name.replace("_", "-")
    assert problem.message == f"no template includes the snippet '{written}', so it has no effect"
    assert problem.path == f"templateSnippets.{written}"
    assert problem.hint.startswith(hint)


def test_snippets_at_extension_points_and_named_snippets_are_used() -> None:
    assert unused(frontend_rules_mine='{% include "my-part" %}', my_part="# text") == []


def test_replaced_snippet_of_a_library_is_used() -> None:
    assert unused(frontend_body="# nothing") == []
