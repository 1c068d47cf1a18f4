"""Snippets of a configuration that no template includes."""

import trio

from haptic_trio.cli.inputs.options import InputOptions
from haptic_trio.cli.inputs.source_map import placed
from haptic_trio.cli.output.findings import Area, find
from haptic_trio.config.checks.unused_snippets import find_unused_snippets
from haptic_trio.config.load import Load, LoadedConfig, locate_problem
from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Report
from haptic_trio.k8s.resource import Resource


def find_unused(loaded: LoadedConfig) -> tuple[Problem, ...]:
    """Return a warning about each snippet of the user that nothing includes."""
    own = loaded.layers[0].value.template_snippets if loaded.layers else {}
    problems = find_unused_snippets(loaded.config, own)
    return tuple(locate_problem(problem, loaded.layers) for problem in problems)


def reporting_unused(load: Load, options: InputOptions, report: Report) -> Load:
    """Return *load*, called in worker threads of Trio, which also reports unused snippets when they change."""
    reported: tuple[Problem, ...] = ()

    def load_and_report(config_map: Resource, secret: Resource | None) -> LoadedConfig:
        nonlocal reported
        loaded = load(config_map, secret)
        problems = tuple(one.problem for one in placed(find(Area.CONFIGURATION, find_unused(loaded)), options))
        if problems != reported:
            reported = problems
            trio.from_thread.run_sync(report, loaded.config_map_source, problems)
        return loaded

    return load_and_report
