"""Check of template variables against the settings of the libraries."""

from collections.abc import Iterator, Mapping
from typing import Any

from haptic_trio.config.model import Config, ValidationTest
from haptic_trio.config.settings import Setting, check_values
from haptic_trio.config.templates import template_set
from haptic_trio.errors import Problem
from haptic_trio.yaml.paths import key_path


def check_variables(
    given: Mapping[str, Any],
    path: str,
    settings: Mapping[str, Setting],
    config: Config,
    tests: Mapping[str, ValidationTest],
) -> Iterator[Problem]:
    """Yield what is wrong with the variables *given* at *path*, and with those of *tests*.

    *settings* are those of the libraries of *config*; the templates of *config*
    show which other names have a meaning.
    """
    texts = tuple(template_set(config).texts.values())
    yield from check_values(given, settings, path=path, templates=texts)
    for name, test in tests.items():
        place = f"{key_path('validationTests', name)}.extraContext"
        yield from check_values(test.extra_context, settings, path=place, templates=texts)
