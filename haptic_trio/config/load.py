"""Loader of the configuration of one iteration: decode, merge libraries, check."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from haptic_trio.config.checks.configuration import check_config, check_settings
from haptic_trio.config.checks.variables import check_variables
from haptic_trio.config.credentials import Credentials, decode_credentials
from haptic_trio.config.decode import Decoded, decode_document
from haptic_trio.config.libraries import LibraryDoc, merge, read_library
from haptic_trio.config.model import Config
from haptic_trio.config.settings import flat_settings
from haptic_trio.config.yaml.document import enclosing_paths, parse_document
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.yaml.paths import item_path

CONFIG_KEY = "config"
"""Key of the ConfigMap's `data` that holds the configuration."""


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A valid configuration, ready to run."""

    config: Config
    """The user's configuration over its libraries."""
    version: str
    """Changes whenever ConfigMap or Secret change."""
    credentials: Credentials | None
    """None without a Secret; only deployments over a Data Plane API need them."""
    config_map_source: str
    """`ConfigMap namespace/name`."""
    secret_source: str = ""
    """`Secret namespace/name`; empty without a Secret."""
    layers: tuple[Decoded[Any], ...] = ()
    """The texts that the configuration comes from, the user's first: where each part of it stands."""


Load: TypeAlias = Callable[[dict[str, Any], dict[str, Any] | None], LoadedConfig]
"""Decodes and checks ConfigMap and Secret, or raises a `ProblemsError`. Takes CPU: run in a thread."""


class ConfigSource(msgspec.Struct, frozen=True):
    """Names of the ConfigMap and Secret of the configuration."""

    namespace: str
    config_map: str
    secret: str


def load_config(configmap: Mapping[str, Any], secret: Mapping[str, Any] | None) -> LoadedConfig:
    """Return the configuration that *configmap* and *secret* hold; raises `ConfigInvalidError` with all problems.

    Takes CPU time (it compiles every template) and reads package data: call it in a worker thread.
    """
    source = _source_of(configmap, "ConfigMap")
    secret_source = _source_of(secret, "Secret") if secret is not None else ""
    problems: list[Problem] = []
    config: Config | None = None
    layers: tuple[Decoded[Any], ...] = ()
    credentials: Credentials | None = None
    try:
        config, layers = _load_merged(configmap, source)
    except ConfigInvalidError as exc:
        problems += exc.problems
    try:
        credentials = decode_credentials(secret, source=secret_source) if secret is not None else None
    except ConfigInvalidError as exc:
        problems += exc.problems
    if problems or config is None:
        raise ConfigInvalidError(problems)
    return LoadedConfig(
        config=config,
        version=joined_version(configmap, secret),
        credentials=credentials,
        config_map_source=source,
        secret_source=secret_source,
        layers=layers,
    )


def joined_version(configmap: Mapping[str, Any] | None, secret: Mapping[str, Any] | None) -> str:
    """Return one text for the resourceVersions of both objects; it differs whenever one of them does."""
    return f"{_metadata(configmap, 'resourceVersion')}/{_metadata(secret, 'resourceVersion')}"


def _load_merged(configmap: Mapping[str, Any], source: str) -> tuple[Config, tuple[Decoded[Any], ...]]:
    document = parse_document(_text_of(configmap, source), source=source)
    if document.is_empty:
        raise ConfigInvalidError([_empty(source)])
    user = decode_document(document, Config)
    libraries, problems = _read_libraries(user.value.templating.libraries)
    config = merge(*(library.value for library in libraries), user=user.value)
    # With a library missing, templates would be full of faults that are not theirs.
    problems += check_settings(config, with_tests=False) if problems else check_config(config)
    settings = flat_settings(*(library.value.settings for library in libraries))
    problems += check_variables(
        user.value.templating.extra_context, "templating.extraContext", settings, config, user.value.validation_tests
    )
    layers: tuple[Decoded[Any], ...] = (user, *reversed(libraries))
    if problems:
        raise ConfigInvalidError(locate_problem(problem, layers) for problem in problems)
    return config, layers


def _text_of(configmap: Mapping[str, Any], source: str) -> str:
    data = configmap.get("data")
    text = data.get(CONFIG_KEY) if isinstance(data, Mapping) else None
    if isinstance(text, str):
        return text
    if text is not None:
        raise ConfigInvalidError(
            [
                Problem(
                    message="expected text",
                    source=source,
                    path=f"data.{CONFIG_KEY}",
                    hint=f"begin it with `{CONFIG_KEY}: |`, so that it is a block of text",
                )
            ]
        )
    present = f"it has {', '.join(sorted(map(str, data)))}" if isinstance(data, Mapping) and data else "it has no data"
    raise ConfigInvalidError(
        [
            Problem(
                message=f"the ConfigMap has no key `{CONFIG_KEY}`",
                source=source,
                path=f"data.{CONFIG_KEY}",
                hint=f"put the configuration under `data.{CONFIG_KEY}`; {present}",
            )
        ]
    )


def _empty(source: str) -> Problem:
    return Problem(
        message="the configuration is empty",
        source=source,
        path=f"data.{CONFIG_KEY}",
        hint="write `{}` to run with the default of every setting",
    )


def _read_libraries(names: Sequence[str]) -> tuple[list[Decoded[LibraryDoc]], list[Problem]]:
    libraries: list[Decoded[LibraryDoc]] = []
    problems: list[Problem] = []
    for index, name in enumerate(names):
        path = item_path("templating.libraries", index)
        if name in names[:index]:
            problems.append(Problem(message=f"the library {name!r} is given twice", path=path))
            continue
        try:
            libraries.append(read_library(name))
        except ConfigInvalidError as exc:
            problems += [
                problem if problem.source else msgspec.structs.replace(problem, path=path) for problem in exc.problems
            ]
    return libraries, [*problems, *_check_required(names, libraries)]


def _check_required(names: Sequence[str], libraries: Sequence[Decoded[LibraryDoc]]) -> Iterator[Problem]:
    """Yield a problem for each of *libraries* that needs one which is not in *names*."""
    for library in libraries:
        name = library.value.name
        if missing := [required for required in library.value.requires if required not in names]:
            index = names.index(name)
            wanted = [*names[:index], *missing, *names[index:]]
            yield Problem(
                message=f"the library {name!r} needs {'the library' if len(missing) == 1 else 'the libraries'} "
                + ", ".join(map(repr, missing)),
                path=item_path("templating.libraries", index),
                hint=f"write libraries: [{', '.join(wanted)}]",
            )


def locate_problem(problem: Problem, layers: Sequence[Decoded[Any]]) -> Problem:
    """Return *problem* with the place in the text that it comes from; *layers* begin with the user's."""
    if problem.source:
        return problem
    for path in enclosing_paths(problem.path):
        for layer in layers:
            place = layer.places.get(path)
            if place is not None:
                return msgspec.structs.replace(problem, source=layer.source, line=place.line, column=place.column)
    return msgspec.structs.replace(problem, source=layers[0].source)


def _source_of(resource: Mapping[str, Any], kind: str) -> str:
    namespace, name = _metadata(resource, "namespace"), _metadata(resource, "name")
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _metadata(resource: Mapping[str, Any] | None, field: str) -> str:
    metadata = (resource or {}).get("metadata")
    return str(metadata.get(field) or "") if isinstance(metadata, Mapping) else ""
