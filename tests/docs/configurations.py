"""Check of the YAML on a page: manifests, a configuration, a library, or values of the chart."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import trio
import yaml

from haptic_trio.config.libraries import decode_library
from haptic_trio.config.load import load_config
from haptic_trio.config.model import Config
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.k8s.manifests.objects import read_manifests
from haptic_trio.validation_tests.gate import run_gate, suite_of
from tests.docs.console import MORE
from tests.docs.markdown import ROOT, Block

PART = "part"
"""Behind `yaml`: a part of something, which means nothing alone."""
LIBRARY = "library.yaml"
VALUES = "values.yaml"
OTHER_MAPS = {"error-pages", "tcp-services"}
"""ConfigMaps with data of the administrator."""
FIELDS = {field.encode_name for field in msgspec.structs.fields(Config)}


async def problems_of(block: Block, binary: Path, scratch: Path) -> list[str]:
    """Return what is wrong with the YAML of *block*; its own tests run, but for those of behaviour."""
    # Tests look in a worker thread whether they were given up.
    return await trio.to_thread.run_sync(_problems_of, block, binary, scratch)


def _problems_of(block: Block, binary: Path, scratch: Path) -> list[str]:
    if block.argument == PART or block.argument.startswith(MORE):
        return []
    try:
        return [f"{block.place}: {problem}" for problem in _check(block, binary, scratch)]
    except (ProblemsError, yaml.YAMLError) as exc:
        return [f"{block.place}: {exc}"]


def _check(block: Block, binary: Path, scratch: Path) -> Iterator[object]:
    if block.argument == LIBRARY:
        (scratch / LIBRARY).write_text(block.text, "utf-8")
        decode_library(scratch, source="library")
        return
    documents = [document for document in yaml.safe_load_all(block.text) if document is not None]
    if block.argument == VALUES:
        for document in documents:
            yield from unknown_values(document)
            if "config" in document:
                yield from _check_config(document["config"], binary)
    elif all(isinstance(document, dict) and {"apiVersion", "kind"} <= set(document) for document in documents):
        found, problems = read_manifests(block.text, block.place)
        yield from problems
        for located in found:
            if located.resource["kind"] == "ConfigMap" and located.resource["metadata"]["name"] not in OTHER_MAPS:
                yield from _load(located.resource, binary)
    else:
        for document in documents:
            if not isinstance(document, dict) or not set(document) <= FIELDS:
                yield f"neither manifests nor a configuration; say `yaml {PART}` if it is a part of something"
            else:
                yield from _check_config(document, binary)


def _check_config(config: Mapping[str, Any], binary: Path) -> Iterator[Problem]:
    text = yaml.safe_dump(dict(config), sort_keys=False, width=10_000)
    yield from _load({"metadata": {"name": "example", "namespace": "docs"}, "data": {"config": text}}, binary)


def _load(config_map: Mapping[str, Any], binary: Path) -> Iterator[Problem]:
    loaded = load_config(dict(config_map), None)
    yield from run_gate(suite_of(loaded), binary)


def unknown_values(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that the chart's schema does not have."""
    schema = msgspec.json.decode((ROOT / "chart" / "values.schema.json").read_bytes())
    yield from _unknown(values, schema, schema, "")


def _unknown(value: Any, schema: Any, root: Mapping[str, Any], path: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    if "$ref" in schema:
        found: Any = root
        for key in re.split("/", schema["$ref"].removeprefix("#/")):
            found = found[key]
        schema = found
    properties = schema.get("properties")
    if not isinstance(value, Mapping) or properties is None:
        return
    for key, inner in value.items():
        if key in properties:
            yield from _unknown(inner, properties[key], root, f"{path}{key}.")
        elif schema.get("additionalProperties") is False:
            yield f"the chart has no value {path}{key}"
