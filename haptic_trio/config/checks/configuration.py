"""Semantic checks of a merged configuration."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from itertools import chain

import msgspec

from haptic_trio.config.checks.gateway_filters import check_gateway_filters
from haptic_trio.config.checks.http import check_http
from haptic_trio.config.checks.selectors import check_field_selector, check_label_selector
from haptic_trio.config.checks.validation_tests import check_tests
from haptic_trio.config.model import Config, WatchedResource
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.ingress.served import COMPUTED_KEYS
from haptic_trio.jsonpath import JSONPathError, compile_path, remove_path
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.functions import GLOBALS
from haptic_trio.templating.values.paths import is_safe_name
from haptic_trio.yaml.paths import item_path, key_path

_DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(rf"{_DNS_LABEL.pattern}(?:\.{_DNS_LABEL.pattern})*")
_API_VERSION = re.compile(rf"(?:{_DNS_NAME.pattern}/)?v[0-9]+(?:(?:alpha|beta)[0-9]+)?")
_PLURAL = re.compile(r"[a-z][a-z0-9-]*")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_DIRECTORY = re.compile(r"[A-Za-z0-9_./-]+")

_TAKEN_VARIABLES = frozenset({*GLOBALS, "http", "resources", "snippets"})

_FILE_GROUPS = (
    ("maps", "maps"),
    ("files", "files"),
    ("sslCertificates", "ssl_certificates"),
    ("crtLists", "crt_lists"),
)


def check_config(config: Config) -> tuple[Problem, ...]:
    """Return everything that is wrong with *config*, which libraries have been merged into."""
    return (*check_settings(config), *_check_main_template(config), *_check_templates(config))


def check_settings(config: Config, *, with_tests: bool = True) -> tuple[Problem, ...]:
    """Return what is wrong with *config* apart from its templates and, unless *with_tests*, its tests."""
    return tuple(
        chain(
            _check_lease(config),
            _check_pod_selector(config),
            _check_directories(config),
            _check_context(config),
            _check_ignored_fields(config),
            check_http(config.http),
            check_gateway_filters(config),
            *(_check_watched(name, watched) for name, watched in config.watched_resources.items()),
            _check_names(config),
            _check_output_paths(config),
            check_tests(config.validation_tests, config.watched_resources) if with_tests else (),
        )
    )


def _check_lease(config: Config) -> Iterator[Problem]:
    lease = config.controller.leader_election
    path = "controller.leaderElection"
    if not lease.lease_duration > lease.renew_deadline:
        yield Problem(
            message=f"must be longer than renewDeadline ({lease.renew_deadline:g} s)",
            path=f"{path}.leaseDuration",
            hint="else another replica takes the lease while the leader still tries to renew it",
        )
    if not lease.renew_deadline > lease.retry_period:
        yield Problem(
            message=f"must be longer than retryPeriod ({lease.retry_period:g} s)",
            path=f"{path}.renewDeadline",
            hint="else there is no second attempt to renew",
        )
    if not _DNS_NAME.fullmatch(lease.lease_name) or len(lease.lease_name) > 253:
        yield Problem(
            message=f"{lease.lease_name!r} is not a valid object name",
            path=f"{path}.leaseName",
            hint="use lower-case letters, digits, `-` and `.`",
        )


def _check_pod_selector(config: Config) -> Iterator[Problem]:
    for key, value in config.pod_selector.match_labels.items():
        message = check_label_selector(f"{key}={value}")
        if message or any(character in key + value for character in ",=!() "):
            yield Problem(
                message=f"`{key}: {value}` is not a valid label",
                path=key_path("podSelector.matchLabels", key),
                hint="keys are `name` or `prefix/name`, values letters, digits, `-`, `_` and `.`",
            )


def _check_directories(config: Config) -> Iterator[Problem]:
    dataplane = config.dataplane
    for field, value in (
        ("mapsDir", dataplane.maps_dir),
        ("sslCertsDir", dataplane.ssl_certs_dir),
        ("generalStorageDir", dataplane.general_storage_dir),
        ("configFile", dataplane.config_file),
    ):
        message = hint = ""
        if not _DIRECTORY.fullmatch(value):
            message, hint = f"{value!r} is not a safe path", "use letters, digits, `_`, `-`, `.` and `/`"
        elif ".." in value.split("/"):
            message, hint = f"{value!r} leaves its directory", "write it without `..`"
        elif value.startswith("/"):
            message, hint = f"{value!r} is absolute", "it is relative to the directory of haproxy.cfg"
        elif field == "configFile" and (value.endswith("/") or value.split("/")[-1] in {"", "."}):
            message, hint = f"{value!r} names no file", "such as `haproxy.cfg`"
        if message:
            yield Problem(message=message, path=f"dataplane.{field}", hint=hint)


def _check_context(config: Config) -> Iterator[Problem]:
    for name in config.templating.extra_context:
        if not _IDENTIFIER.fullmatch(name) or name in _TAKEN_VARIABLES:
            yield Problem(
                message=f"{name!r} cannot be the name of a variable",
                path=key_path("templating.extraContext", name),
                hint="every template has it already; choose another name"
                if name in _TAKEN_VARIABLES
                else "use letters, digits and `_`, with a letter first",
            )


def _check_ignored_fields(config: Config) -> Iterator[Problem]:
    for index, expression in enumerate(config.watched_resources_ignore_fields):
        try:
            remove_path({}, compile_path(expression))
        except JSONPathError as exc:
            yield _jsonpath_problem(exc, item_path("watchedResourcesIgnoreFields", index))
    for name, watched in config.watched_resources.items():
        for index, expression in enumerate(watched.ignore_fields):
            try:
                remove_path({}, compile_path(expression))
            except JSONPathError as exc:
                path = key_path("watchedResources", name)
                yield _jsonpath_problem(exc, item_path(f"{path}.ignoreFields", index))


def _check_watched(name: str, watched: WatchedResource) -> Iterator[Problem]:
    path = key_path("watchedResources", name)
    if not _IDENTIFIER.fullmatch(name):
        yield Problem(
            message=f"{name!r} cannot be used as `resources.<name>`",
            path=path,
            hint="use letters, digits and `_`, with a letter first",
        )
    if not _API_VERSION.fullmatch(watched.api_version):
        yield Problem(
            message=f"{watched.api_version!r} is not a valid API version",
            path=f"{path}.apiVersion",
            hint="write group and version such as `networking.k8s.io/v1`, or `v1`",
        )
    if not _PLURAL.fullmatch(watched.resources):
        yield Problem(
            message=f"{watched.resources!r} is not a valid plural name of a kind",
            path=f"{path}.resources",
            hint="write the lower-case plural of the kind, such as `ingresses`",
        )
    for index, expression in enumerate(watched.index_by):
        try:
            _ = COMPUTED_KEYS.get(expression) or compile_path(expression)
        except JSONPathError as exc:
            yield _jsonpath_problem(exc, item_path(f"{path}.indexBy", index))
    for index, namespace in enumerate(watched.namespaces):
        if not _DNS_LABEL.fullmatch(namespace):
            yield Problem(
                message=f"{namespace!r} is not a valid name of a namespace",
                path=item_path(f"{path}.namespaces", index),
                hint="use lower-case letters, digits and `-`",
            )
    for field, message in (
        ("labelSelector", check_label_selector(watched.label_selector)),
        ("fieldSelector", check_field_selector(watched.field_selector)),
    ):
        if message:
            yield Problem(message=message, path=f"{path}.{field}")


def _jsonpath_problem(error: JSONPathError, path: str) -> Problem:
    return Problem(
        message=f"JSONPath {error.expression!r}, character {error.position + 1}: {error.message}",
        path=path,
        hint=error.hint,
    )


def _check_main_template(config: Config) -> Iterator[Problem]:
    if config.haproxy_config is None:
        yield Problem(
            message="there is no template for haproxy.cfg",
            path="haproxyConfig",
            hint="write `haproxyConfig.template`, or add the library `base` to `templating.libraries`",
        )


def _check_templates(config: Config) -> Iterator[Problem]:
    templates = template_set(config)
    try:
        Engine(templates.texts, snippets=templates.priorities).dismantle()
    except ProblemsError as exc:
        for problem in exc.problems:
            yield msgspec.structs.replace(problem, path=templates.config_paths.get(problem.source, ""))


def _check_names(config: Config) -> Iterator[Problem]:
    for field, attribute in (*_FILE_GROUPS, ("templateSnippets", "template_snippets")):
        templates: Mapping[str, object] = getattr(config, attribute)
        for name in templates:
            if not is_safe_name(name):
                yield Problem(
                    message=f"{name!r} is not a safe name",
                    path=key_path(field, name),
                    hint="use letters, digits, `_`, `-` and `.`, with a letter, digit or `_` first, at most 200",
                )
    if MAIN_TEMPLATE in config.template_snippets:
        yield Problem(
            message=f"{MAIN_TEMPLATE!r} is the name of the main template",
            path=key_path("templateSnippets", MAIN_TEMPLATE),
            hint="rename the snippet",
        )


def _check_output_paths(config: Config) -> Iterator[Problem]:
    templates = template_set(config)
    dataplane = config.dataplane
    taken: dict[str, str] = {}
    for field, value in (
        ("mapsDir", dataplane.maps_dir),
        ("sslCertsDir", dataplane.ssl_certs_dir),
        ("generalStorageDir", dataplane.general_storage_dir),
    ):
        taken.setdefault(posixpath.normpath(value), f"dataplane.{field}")
    taken.setdefault(posixpath.normpath(dataplane.config_file), "dataplane.configFile")
    for output in templates.outputs:
        path = templates.config_paths[output.name].removesuffix(".template")
        other = taken.setdefault(output.path, path)
        if other != path and is_safe_name(output.name.partition("/")[2]):
            yield Problem(
                message=f"becomes the same path as {other}: {output.path}",
                path=path,
                hint="rename one of them, or give them different directories under `dataplane`",
            )
