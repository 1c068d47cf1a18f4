"""Options that several verbs share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from haptic_trio.stages.process import ConfigSource

F = TypeVar("F", bound=Callable[..., Any])


class InputOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the input is."""

    manifests: Path
    source: ConfigSource
    haproxy: str | None


def input_options(command: F) -> F:
    """Add `--manifests`, `--namespace`, `--config-map`, `--secret` and `--haproxy`."""
    for decorate in reversed(
        (
            click.option(
                "--manifests",
                type=click.Path(exists=True, file_okay=False, path_type=Path),
                required=True,
                envvar="HAPTIC_MANIFESTS",
                help="Directory of Kubernetes manifests that is the cluster.",
            ),
            click.option(
                "--namespace",
                default="default",
                show_default=True,
                envvar="HAPTIC_NAMESPACE",
                help="Namespace of the ConfigMap and the Secret.",
            ),
            click.option(
                "--config-map",
                default="haptic-trio",
                show_default=True,
                envvar="HAPTIC_CONFIG_MAP",
                help="Name of the ConfigMap whose `data.config` is the configuration.",
            ),
            click.option(
                "--secret",
                default="haptic-trio",
                show_default=True,
                envvar="HAPTIC_SECRET",
                help="Name of the Secret with credentials; it may be absent for local instances.",
            ),
            click.option(
                "--haproxy",
                metavar="PATH",
                envvar="HAPTIC_HAPROXY",
                help="HAProxy binary; by default the one on PATH, else that of the `haproxy` extra.",
            ),
        )
    ):
        command = decorate(command)
    return command


def make_input(manifests: Path, namespace: str, config_map: str, secret: str, haproxy: str | None) -> InputOptions:
    """Return the shared options as one value."""
    return InputOptions(
        manifests=manifests,
        source=ConfigSource(namespace=namespace, config_map=config_map, secret=secret),
        haproxy=haproxy,
    )
