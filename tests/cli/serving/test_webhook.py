"""The webhook reports every fault of a configuration, with its place."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.channels import ConfigSeen
from haptic_trio.cli.serving.webhook import check_configuration
from haptic_trio.config.load import ConfigSource, load_config
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.review.dry_run_object import DryRunError

SOURCE = ConfigSource("edge", "haptic-trio", "credentials")
NO_SECRET = ConfigSeen(None, None)
BAD_SECRET: Resource = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "credentials", "namespace": "edge"},
    "data": {"dataplane_username": "no Base64"},
}


def configured(fields: Mapping[str, Any]) -> Resource:
    """Return the ConfigMap with *fields*."""
    metadata = {"name": "haptic-trio", "namespace": "edge"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config": json.dumps(fields)}}


async def check(scratch: Path, seen: ConfigSeen | None = NO_SECRET, /, **fields: Any) -> tuple[Problem, ...]:
    """Return what is wrong with a configuration of *fields*."""
    look = partial(
        check_configuration,
        configured({"templating": {"libraries": ["base"]}, **fields}),
        newest=lambda: seen,
        source=SOURCE,
        load=load_config,
        binary=None,
        scratch=scratch,
    )
    return await trio.to_thread.run_sync(look)


async def test_good_configuration_has_no_problems(tmp_path: Path) -> None:
    assert await check(tmp_path) == ()


async def test_every_fault_is_found_where_it_stands(tmp_path: Path) -> None:
    problems = await check(tmp_path, templateSnippets={"backends-x": {"template": "{{ x | nix }}"}}, instance={})

    assert {problem.source for problem in problems} == {"ConfigMap edge/haptic-trio"}
    assert all(problem.line for problem in problems)


async def test_test_that_fails_is_a_problem(tmp_path: Path) -> None:
    failing = {"assertions": [{"type": "contains", "target": "haproxy.cfg", "pattern": "no such line"}]}

    (problem,) = await check(tmp_path, validationTests={"lines": failing})

    assert "no such line" in problem.message


async def test_fault_of_the_secret_is_not_blamed_on_the_configuration(tmp_path: Path) -> None:
    seen = ConfigSeen(None, BAD_SECRET)

    with pytest.raises(DryRunError, match="the Secret with the credentials"):
        await check(tmp_path, seen)
    assert "instance" in str(await check(tmp_path, seen, instance={}))


async def test_no_review_is_possible_before_the_cluster_was_read(tmp_path: Path) -> None:
    with pytest.raises(DryRunError, match="not ready"):
        await check(tmp_path, None)
