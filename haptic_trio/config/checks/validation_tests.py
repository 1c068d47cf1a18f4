"""Semantic checks of validation tests."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from haptic_trio.config.assertions import (
    Assertion,
    Contains,
    Equals,
    JsonPathHolds,
    MatchCount,
    Needle,
    NotContains,
    PlanIs,
    PlanOutcome,
    RenderingError,
    type_of,
)
from haptic_trio.config.checks.http import check_http_resources
from haptic_trio.config.decode import nearest_hint
from haptic_trio.config.model import ValidationTest, WatchedResource
from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.errors import Problem
from haptic_trio.jsonpath import JSONPathError, compile_path
from haptic_trio.yaml.paths import item_path, key_path

MAX_REPEAT: Final = 20_000
"""Objects that one fixture may stand for."""

REPEAT: Final = "repeat"
OBJECT: Final = "object"
CERTIFICATE_FOR: Final = "certificateFor"

_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?")


def check_tests(tests: Mapping[str, ValidationTest], kinds: Mapping[str, WatchedResource]) -> Iterator[Problem]:
    """Yield what is wrong with *tests*, where *kinds* are all watched resources by name."""
    extended = {test.extends for test in tests.values()}
    for name, test in tests.items():
        path = key_path("validationTests", name)
        yield from _check_extends(name, path, tests)
        for field, fixtures in (("fixtures", test.fixtures), ("previousFixtures", test.previous_fixtures)):
            yield from _check_fixtures(f"{path}.{field}", fixtures, kinds)
        yield from check_http_resources(f"{path}.httpResources", test.http_resources)
        yield from check_http_resources(f"{path}.previousHttpResources", test.previous_http_resources)
        if not test.assertions and name not in extended:
            yield Problem(message="asserts nothing", path=path, hint="add `assertions`, or extend it by another test")
        if test.current_config and (test.previous_fixtures or test.previous_http_resources):
            field = "previousFixtures" if test.previous_fixtures else "previousHttpResources"
            yield Problem(message=f"`currentConfig` and `{field}` exclude each other", path=f"{path}.currentConfig")
        for index, assertion in enumerate(test.assertions):
            yield from _check_assertion(item_path(f"{path}.assertions", index), assertion, test)


def _check_extends(name: str, path: str, tests: Mapping[str, ValidationTest]) -> Iterator[Problem]:
    seen = [name]
    while (base := tests[seen[-1]].extends) and len(seen) <= len(tests):
        if base not in tests:
            if len(seen) == 1:
                hint = nearest_hint(base, tests)
                yield Problem(message=f"there is no test {base!r}", path=f"{path}.extends", hint=hint)
            return
        if base == name:
            yield Problem(message="extends itself", path=f"{path}.extends", hint=" → ".join([*seen, base]))
            return
        seen.append(base)


def _check_fixtures(
    path: str, fixtures: Mapping[str, list[dict[str, Any]]], kinds: Mapping[str, WatchedResource]
) -> Iterator[Problem]:
    for name, objects in fixtures.items():
        where = key_path(path, name)
        if name not in kinds:
            yield Problem(message=f"no watched resource {name!r}", path=where, hint=nearest_hint(name, kinds))
        for index, fixture in enumerate(objects):
            yield from _check_fixture(item_path(where, index), fixture)
            if name in kinds:
                yield from _check_kind(item_path(where, index), fixture, name, kinds)


def _check_kind(
    path: str, fixture: dict[str, Any], name: str, kinds: Mapping[str, WatchedResource]
) -> Iterator[Problem]:
    """Yield that *fixture* is of another kind than *name*, if it is plain of which one."""
    pattern = fixture.get(OBJECT) if REPEAT in fixture else fixture
    if not isinstance(pattern, dict) or not isinstance(kind := pattern.get("kind"), str):
        return
    lower = kind.lower()
    # Only an API server knows the plural; these are what it may be.
    plurals = {f"{lower}s", f"{lower}es", f"{lower.removesuffix('y')}ies", lower}
    others = [
        other
        for other, watched in kinds.items()
        if watched.resources in plurals and pattern.get("apiVersion", watched.api_version) == watched.api_version
    ]
    if others and kinds[name].resources not in plurals:
        yield Problem(
            message=f"is of the kind {kind}, which is not what {name!r} watches",
            path=path,
            hint=f"put it under `{others[0]}`",
        )


def _check_fixture(path: str, fixture: dict[str, Any]) -> Iterator[Problem]:
    if REPEAT in fixture:
        count, pattern = fixture[REPEAT], fixture.get(OBJECT)
        if type(count) is not int or not 1 <= count <= MAX_REPEAT:
            yield Problem(message=f"expected a number from 1 to {MAX_REPEAT}", path=f"{path}.{REPEAT}")
        if not isinstance(pattern, dict) or len(fixture) != 2:
            hint = "such as {repeat: 10, object: {kind: Service, metadata: {name: 'web{n}'}}}"
            yield Problem(message=f"expected `{REPEAT}` and `{OBJECT}`, and nothing else", path=path, hint=hint)
            return
        fixture, path = pattern, f"{path}.{OBJECT}"
    metadata = fixture.get("metadata")
    if not isinstance(fixture.get("kind"), str):
        yield Problem(message="`kind` is missing", path=f"{path}.kind", hint="such as `kind: Ingress`")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        yield Problem(message="`metadata.name` is missing", path=f"{path}.metadata.name")
    names = fixture.get(CERTIFICATE_FOR)
    if names is not None and not (isinstance(names, list) and names and all(isinstance(one, str) for one in names)):
        yield Problem(message="expected a list of host names", path=f"{path}.{CERTIFICATE_FOR}")


def _check_assertion(path: str, assertion: Assertion, test: ValidationTest) -> Iterator[Problem]:
    if isinstance(assertion, Contains | NotContains | MatchCount | RenderingError | PlanIs):
        yield from _check_needle(path, assertion)
    if isinstance(assertion, Contains | NotContains | MatchCount | Equals):
        if assertion.section and assertion.target != MAIN_TEMPLATE:
            yield Problem(message=f"only {MAIN_TEMPLATE} has sections", path=f"{path}.section")
    elif isinstance(assertion, JsonPathHolds):
        try:
            compile_path(assertion.path)
        except JSONPathError as exc:
            message = f"JSONPath {exc.expression!r}, character {exc.position + 1}: {exc.message}"
            yield Problem(message=message, path=f"{path}.path", hint=exc.hint)
    elif isinstance(assertion, PlanIs):
        yield from _check_plan(path, assertion, test)


def _check_plan(path: str, assertion: PlanIs, test: ValidationTest) -> Iterator[Problem]:
    if not test.current_config and not test.previous_fixtures and not test.previous_http_resources:
        hint = "give the test `previousFixtures` or `currentConfig`"
        yield Problem(message="there is no state before to compare with", path=path, hint=hint)
    if not _VERSION.fullmatch(assertion.haproxy_version):
        yield Problem(
            message=f"{assertion.haproxy_version!r} is not a valid version",
            path=f"{path}.haproxyVersion",
            hint='such as "2.8", in quotes',
        )
    if assertion.operations and assertion.outcome is not PlanOutcome.RUNTIME:
        yield Problem(message="only the outcome `runtime` has operations", path=f"{path}.operations")
    if (assertion.text or assertion.pattern) and assertion.outcome is not PlanOutcome.RELOAD:
        yield Problem(message="only the outcome `reload` has reasons", path=path, hint="remove `text` and `pattern`")


def _check_needle(path: str, assertion: Needle) -> Iterator[Problem]:
    if assertion.text and assertion.pattern:
        yield Problem(message="`text` and `pattern` exclude each other", path=f"{path}.pattern")
    elif not assertion.text and not assertion.pattern and not isinstance(assertion, RenderingError | PlanIs):
        hint = "`text` is taken as it is, `pattern` is a regular expression"
        yield Problem(message=f"`{type_of(assertion)}` needs `text` or `pattern`", path=path, hint=hint)
    if assertion.pattern:
        try:
            re.compile(assertion.pattern, re.MULTILINE)
        except re.error as exc:
            at = f", character {exc.pos + 1}" if exc.pos is not None else ""
            yield Problem(message=f"invalid regular expression{at}: {exc.msg}", path=f"{path}.pattern")
