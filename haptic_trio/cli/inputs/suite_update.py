"""`test --update`: writes observed values into the `expected` fields of test files."""

from collections.abc import Sequence
from pathlib import Path

from haptic_trio.cli.inputs.files import manifest_texts, replace_file
from haptic_trio.cli.inputs.suite_sources import Input
from haptic_trio.config.load import ConfigSource
from haptic_trio.validation_tests.cases import updates_of
from haptic_trio.validation_tests.results import CaseResult
from haptic_trio.validation_tests.update import UpdateError, update_config_map, update_tests


def update_files(
    results: Sequence[CaseResult], given: Input, manifests: Path | None, source: ConfigSource | None
) -> int:
    """Rewrite the expected texts that differ and return their number. Raises UpdateError and OSError."""
    changes: dict[str, dict[tuple[str, int], str]] = {}
    for result, one in updates_of(results):
        assert one.actual is not None
        changes.setdefault(result.suite, {})[result.name, one.index] = one.actual
    for suite, found in changes.items():
        path = given.files.get(suite)
        if path is not None:
            _replace(path, update_tests(path.read_text("utf-8"), found, source=str(path)))
        elif manifests is not None and source is not None and suite.startswith("ConfigMap "):
            _update_manifests(manifests, found, source)
        else:
            raise UpdateError(f"{suite}: the tests of a library are part of the program; edit them in its sources")
    return sum(len(found) for found in changes.values())


def _update_manifests(manifests: Path, found: dict[tuple[str, int], str], source: ConfigSource) -> None:
    for path, text in manifest_texts(manifests):
        updated = update_config_map(text, found, namespace=source.namespace, name=source.config_map, source=str(path))
        if updated is not None:
            _replace(path, updated)
            return
    raise UpdateError(f"no file below {manifests} holds the ConfigMap {source.namespace}/{source.config_map}")


def _replace(path: Path, text: str) -> None:
    # Keep line endings and symbolic links.
    if b"\r\n" in path.read_bytes():
        text = text.replace("\n", "\r\n")
    replace_file(path.resolve(), text, mode=path.stat().st_mode & 0o777)
