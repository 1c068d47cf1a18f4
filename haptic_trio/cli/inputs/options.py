"""Options that several subcommands share."""

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from haptic_trio.cli.inputs.choices import KUBECONFIG, MANIFESTS
from haptic_trio.config.load import ConfigSource
from haptic_trio.k8s.api.auth import read_namespace

F = TypeVar("F", bound=Callable[..., Any])

_LISTEN = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):(?P<port>\d{1,5})")


class InputOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Location of the input: *manifests*, the API server of *kubeconfig*, or that of the own pod."""

    manifests: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    """Context of the kubeconfig; None: its current context."""
    source: ConfigSource
    haproxy: str | None


def input_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the cluster, the configuration in it, and the HAProxy binary.

    *command* gets them as one value, `source`; see `make_input`.
    """

    @wraps(command)
    def with_source(
        *,
        manifests: Path | None,
        kubeconfig: Path | None,
        context: str | None,
        in_cluster: bool,
        namespace: str | None,
        config_map: str,
        secret: str,
        haproxy: str | None,
        **others: Any,
    ) -> None:
        source = make_input(
            manifests,
            namespace,
            config_map,
            secret,
            haproxy,
            kubeconfig=kubeconfig,
            context=context,
            in_cluster=in_cluster,
        )
        command(source=source, **others)

    decorated = with_source
    for decorate in reversed(
        (
            click.option(
                "--manifests",
                type=MANIFESTS,
                envvar="HAPTIC_MANIFESTS",
                help="Use a directory of Kubernetes manifests as the cluster.",
            ),
            click.option(
                "--kubeconfig",
                type=KUBECONFIG,
                envvar="HAPTIC_KUBECONFIG",
                show_default="the first file of $KUBECONFIG, else ~/.kube/config, if it exists",
                help="Kubeconfig with the API server and the credentials.",
            ),
            click.option(
                "--context", envvar="HAPTIC_CONTEXT", help="Context of the kubeconfig. Default: its current context."
            ),
            click.option(
                "--in-cluster",
                is_flag=True,
                envvar="HAPTIC_IN_CLUSTER",
                help="Use the API server and the service account of the own pod.",
            ),
            click.option(
                "--namespace",
                envvar="HAPTIC_NAMESPACE",
                show_default="the pod's with --in-cluster, else `default`",
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
                help="Name of the Secret with credentials; optional for local instances.",
            ),
            click.option(
                "--haproxy",
                metavar="PATH",
                envvar="HAPTIC_HAPROXY",
                help="HAProxy binary. Default: the one on PATH, else that of the `haproxy` extra.",
            ),
        )
    ):
        decorated = decorate(decorated)
    return decorated


def check_listen(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return *value* if it is an address with a port."""
    match = _LISTEN.fullmatch(value)
    if match is None or int(match["port"]) > 65535:
        raise click.BadParameter(
            f"{value!r} is not an address with a port (expected such as 127.0.0.1:9090 or [::1]:9090)"
        )
    return value


def log_format_option(command: F) -> F:
    """Add `--log-format`."""
    return click.option(
        "--log-format",
        type=click.Choice(["console", "json"]),
        default="console",
        show_default=True,
        envvar="HAPTIC_LOG_FORMAT",
        help="Format of log lines.",
    )(command)


def find_kubeconfig(environment: Mapping[str, str]) -> Path | None:
    """Return the first existing file of `KUBECONFIG`, or `~/.kube/config`; None if that does not exist.

    Raises `click.UsageError` if `KUBECONFIG` names no existing file.
    """
    if given := environment.get("KUBECONFIG", ""):
        paths = [Path(one) for one in given.split(os.pathsep) if one]
        found = next((path for path in paths if path.is_file()), None)
        if found is None:
            raise click.UsageError(f"KUBECONFIG names {given}, which does not exist; give --kubeconfig FILE")
        return found
    home = environment.get("HOME", "")
    usual = Path(home) / ".kube" / "config"
    return usual if home and usual.is_file() else None


def make_input(
    manifests: Path | None,
    namespace: str | None,
    config_map: str,
    secret: str,
    haproxy: str | None,
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    in_cluster: bool = False,
) -> InputOptions:
    """Return the shared options as one value; raises `click.UsageError` unless they select exactly one cluster."""
    if manifests is None and kubeconfig is None and not in_cluster:
        kubeconfig = find_kubeconfig(os.environ)
    if (manifests is not None) + (kubeconfig is not None) + in_cluster != 1:
        raise click.UsageError(
            "give one of --manifests DIR, --kubeconfig FILE or --in-cluster"
            " (without them, $KUBECONFIG or ~/.kube/config is used if it exists)"
        )
    if context is not None and kubeconfig is None:
        raise click.UsageError("--context needs --kubeconfig")
    if namespace is None:
        namespace = (read_namespace() if in_cluster else "") or "default"
    return InputOptions(
        manifests=manifests,
        kubeconfig=kubeconfig,
        context=context,
        source=ConfigSource(namespace=namespace, config_map=config_map, secret=secret),
        haproxy=haproxy,
    )
