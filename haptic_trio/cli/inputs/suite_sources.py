"""Sources of tests for `test`: a ConfigMap, files beside it, and shipped libraries."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import trio

from haptic_trio.cli.inputs.oneshot import read_config
from haptic_trio.cli.inputs.options import InputOptions
from haptic_trio.config.libraries import library_names
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.suites import Suite, read_library_suites, read_suite
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import HapticError, Problem
from haptic_trio.k8s.manifests.files import is_manifest
from haptic_trio.validation_tests.gate import suite_of

SUFFIXES = (".yaml", ".yml")


class NoTestsError(HapticError):
    """No tests were found."""


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """Test suites, and the files of those that are in files."""

    suites: tuple[Suite, ...]
    files: dict[str, Path]
    """By name of the suite."""

    @property
    def own_templates(self) -> frozenset[str]:
        """Names of the templates that the configuration adds or overrides."""
        return frozenset(name for suite in self.suites for name in suite.own_templates)


async def read_input(options: InputOptions | None, tests: Sequence[Path], libraries: Sequence[str]) -> Input:
    """Return all tests; raises `ConfigInvalidError` with all their problems, OSError, and IncompleteError."""
    suites: list[Suite] = []
    files: dict[str, Path] = {}
    problems: list[Problem] = []
    if options is not None:
        loaded = await read_config(options)
        suites.append(suite_of(loaded))
        for path in _find_files(tests):
            files[str(path)] = path
            try:
                suites.append(await trio.to_thread.run_sync(_read_file, path, loaded))
            except ConfigInvalidError as exc:
                problems += exc.problems
    for name in library_names() if "all" in libraries else libraries:
        try:
            suites += await trio.to_thread.run_sync(read_library_suites, name)
        except ConfigInvalidError as exc:
            problems += exc.problems
    if problems:
        raise ConfigInvalidError(problems)
    return Input(suites=tuple(suites), files=files)


def _read_file(path: Path, loaded: LoadedConfig) -> Suite:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as exc:
        raise ConfigInvalidError(
            [Problem(message="is not UTF-8", source=str(path), hint="save the file as UTF-8")]
        ) from exc
    return read_suite(text, source=str(path), config=loaded.config, layers=loaded.layers)


def _is_suite(path: Path) -> bool:
    # Skip files of editors, and pipes, from which a read may never return.
    return path.suffix in SUFFIXES and is_manifest(path.name) and not path.is_dir() and not path.is_fifo()


def _find_files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        own = sorted(filter(_is_suite, path.rglob("*"))) if path.is_dir() else [path]
        if not own:
            raise NoTestsError(f"{path}: no test files (expected names that end in {' or '.join(SUFFIXES)})")
        found += own
    return found
