"""Files of validation tests beside a configuration or a library."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from haptic_trio.config.checks.configuration import check_config
from haptic_trio.config.checks.validation_tests import check_tests
from haptic_trio.config.checks.variables import check_variables
from haptic_trio.config.decode import Decoded, decode_text
from haptic_trio.config.libraries import LibraryDoc, merge, merge_context, read_library
from haptic_trio.config.load import locate_problem
from haptic_trio.config.model import Config, Snippet, TemplatingConfig, ValidationTest
from haptic_trio.config.settings import flat_settings
from haptic_trio.config.templates import template_set
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem


class SuiteFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A file of tests."""

    libraries: tuple[str, ...] = ()
    """The libraries that the tests of a library are for; by default that library alone."""
    extra_context: dict[str, Any] = {}
    """Variables for all tests of the file, over those of the configuration."""
    template_snippets: dict[str, Snippet] = {}
    """Pieces of template for all tests of the file, such as one that hangs on an extension point."""
    validation_tests: dict[str, ValidationTest]
    """The tests by name."""


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration, the tests that are for it, and where both stand."""

    name: str
    """`ConfigMap namespace/name`, or the file."""
    config: Config
    layers: tuple[Decoded[Any], ...]
    """The texts that it comes from, the tests' own one first."""

    @property
    def tests(self) -> dict[str, ValidationTest]:
        """The tests by name."""
        return self.config.validation_tests

    @property
    def own_templates(self) -> frozenset[str]:
        """Names of the templates that the user's configuration adds or overrides."""
        own = (layer.value for layer in self.layers if isinstance(layer.value, Config))
        return frozenset(name for config in own for name in template_set(config).texts)

    def locate(self, problem: Problem) -> Problem:
        """Return *problem* with the place of its path."""
        return locate_problem(problem, self.layers)


def read_suite(text: str, *, source: str, config: Config, layers: Sequence[Decoded[Any]] = ()) -> Suite:
    """Return the tests of the file *text* for *config*, whose own ones do not take part.

    Raises `ConfigInvalidError` with all problems.
    """
    decoded = decode_text(text, SuiteFile, source=source)
    if decoded.value.libraries:
        problem = Problem(message="only tests of a library choose libraries", path="libraries")
        raise ConfigInvalidError([locate_problem(problem, (decoded,))])
    return _make_suite(decoded, config, layers)


def read_library_suites(name: str) -> list[Suite]:
    """Return the tests that ship with the library *name*, file by file; raises `ConfigInvalidError`."""
    read_library(name)
    directory = files("haptic_trio").joinpath("libraries", name, "tests")
    if not directory.is_dir():
        return []
    found = sorted(
        (entry for entry in directory.iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name
    )
    suites = []
    for entry in found:
        decoded = decode_text(entry.read_text("utf-8"), SuiteFile, source=f"library {name}/tests/{entry.name}")
        libraries = [read_library(one) for one in decoded.value.libraries or (name,)]
        user = Config(templating=TemplatingConfig(libraries=tuple(one.value.name for one in libraries)))
        suites.append(_make_suite(decoded, merge(*(one.value for one in libraries), user=user), libraries))
    return suites


def _make_suite(
    decoded: Decoded[SuiteFile], config: Config, layers: Iterable[Decoded[Config] | Decoded[LibraryDoc]]
) -> Suite:
    file, layers = decoded.value, tuple(layers)
    settings = flat_settings(*(layer.value.settings for layer in layers if isinstance(layer.value, LibraryDoc)))
    context = merge_context(config.templating.extra_context, file.extra_context)
    own = msgspec.structs.replace(
        config,
        templating=msgspec.structs.replace(config.templating, extra_context=context),
        template_snippets={**config.template_snippets, **file.template_snippets},
        validation_tests=file.validation_tests,
    )
    suite = Suite(name=decoded.source, config=own, layers=(decoded, *layers))
    problems = [
        *check_tests(file.validation_tests, own.watched_resources),
        *check_config(own),
        *check_variables(file.extra_context, "extraContext", settings, own, file.validation_tests),
    ]
    if problems:
        raise ConfigInvalidError(suite.locate(problem) for problem in dict.fromkeys(problems))
    return suite
