"""Admission webhook of `serve`: options and data sources."""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from haptic_trio.channels import ConfigSeen, Latest
from haptic_trio.cli.inputs.options import check_listen
from haptic_trio.config.load import ConfigSource, load_config
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.k8s.resource import Resource
from haptic_trio.metrics import Families
from haptic_trio.pipeline.review.dry_run_object import DryRunError
from haptic_trio.stages.process import Process
from haptic_trio.validation_tests.gate import Load, run_gate, suite_of
from haptic_trio.webhook.admission import Admission, Present
from haptic_trio.webhook.configuration import ConfigurationReviews
from haptic_trio.webhook.hidden import hidden_words
from haptic_trio.webhook.metrics import WebhookMetrics
from haptic_trio.webhook.server import Report, WebhookOptions, run_webhook
from haptic_trio.webhook.targets import targets_of

_FILE = click.Path(dir_okay=False, path_type=Path)


def webhook_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the webhook; *command* gets them as `webhook`, None without an address."""

    @wraps(command)
    def with_webhook(
        *,
        webhook_listen: str | None,
        webhook_cert: Path | None,
        webhook_key: Path | None,
        webhook_client_ca: Path | None,
        webhook_clients: Sequence[str],
        **others: Any,
    ) -> None:
        webhook = make_webhook(webhook_listen, webhook_cert, webhook_key, webhook_client_ca, webhook_clients)
        command(webhook=webhook, **others)

    decorated = with_webhook
    for decorate in reversed(
        (
            click.option(
                "--webhook-listen",
                metavar="ADDRESS:PORT",
                callback=_check_listen,
                envvar="HAPTIC_WEBHOOK_LISTEN",
                help="HTTPS address of the admission webhook, which reviews the ConfigMap and objects of resources with"
                " `enableValidationWebhook`. Default: no webhook.",
            ),
            click.option(
                "--webhook-cert",
                type=_FILE,
                envvar="HAPTIC_WEBHOOK_CERT",
                help="Certificate chain of the webhook (PEM).",
            ),
            click.option(
                "--webhook-key", type=_FILE, envvar="HAPTIC_WEBHOOK_KEY", help="Private key of --webhook-cert (PEM)."
            ),
            click.option(
                "--webhook-client-ca",
                type=_FILE,
                envvar="HAPTIC_WEBHOOK_CLIENT_CA",
                help="CA certificates of the API server's client certificate (PEM). Default: no client certificate.",
            ),
            click.option(
                "--webhook-client",
                "webhook_clients",
                multiple=True,
                metavar="NAME",
                envvar="HAPTIC_WEBHOOK_CLIENTS",
                help="Name in the API server's client certificate; may be repeated. Default: any certificate that"
                " --webhook-client-ca signed.",
            ),
        )
    ):
        decorated = decorate(decorated)
    return decorated


def _check_listen(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return None if value is None else check_listen(context, parameter, value)


def make_webhook(
    listen: str | None, certificate: Path | None, key: Path | None, authorities: Path | None, clients: Sequence[str]
) -> WebhookOptions | None:
    """Return the options of the webhook, None without an address; raises UsageError if an option is missing."""
    if listen is None:
        if certificate or key or authorities or clients:
            raise click.UsageError("the options --webhook-… need --webhook-listen")
        return None
    if certificate is None or key is None:
        raise click.UsageError("--webhook-listen needs --webhook-cert and --webhook-key")
    if clients and authorities is None:
        raise click.UsageError("--webhook-client needs --webhook-client-ca")
    return WebhookOptions(
        listen=listen, certificate=certificate, key=key, authorities=authorities, allowed=frozenset(clients)
    )


async def serve_reviews(
    process: Process,
    options: WebhookOptions | None,
    families: Families,
    report: Report,
    *,
    load: Load = load_config,
    addresses: Latest[tuple[str, ...]] | None = None,
) -> None:
    """Serve the webhook of *process* until cancelled; returns at once without *options*.

    *load* loads the ConfigMap under review. The bound addresses are put into *addresses*.
    """
    if options is None:
        return
    metrics = WebhookMetrics(families)
    check = partial(
        check_configuration,
        newest=partial(seen_by, process),
        source=process.source,
        load=load,
        # `haproxy -c` runs Lua of the configuration: only for authenticated clients.
        binary=process.haproxy if options.authorities is not None else None,
        scratch=process.scratch,
    )
    configuration = ConfigurationReviews(process.source.namespace, process.source.config_map, check)
    await run_webhook(
        options,
        Admission(partial(review_state_of, process), metrics, configuration=configuration),
        metrics,
        report=report,
        announce=addresses.put if addresses is not None else lambda _addresses: None,
    )


def review_state_of(process: Process) -> Present | None:
    """Return the state for reviews; None until the running iteration has a valid configuration, deployed or not."""
    state = process.running.value
    if state is None or state.components is None or state.validated is None or state.validated.value is None:
        return None
    components = state.components
    return Present(targets_of(components.config), components.dry_runs, partial(hidden_words, components.stores))


def seen_by(process: Process) -> ConfigSeen | None:
    """Return the newest ConfigMap and Secret of the cluster; None until both were received."""
    return process.candidates.value


def check_configuration(
    config_map: Resource,
    *,
    newest: Callable[[], ConfigSeen | None],
    source: ConfigSource,
    load: Load,
    binary: Path | None,
    scratch: Path,
) -> tuple[Problem, ...]:
    """Return the problems of *config_map*, loaded with the newest Secret. Runs in a worker thread of Trio.

    Runs the tests of the configuration; without *binary*, those without HAProxy. Problems of the Secret are not
    returned. Raises `DryRunError` if the review is not possible.
    """
    seen = newest()
    if seen is None:
        raise DryRunError("haptic-trio is not ready")
    try:
        loaded = load(config_map, seen.secret)
    except ProblemsError as exc:
        problems = tuple(one for one in exc.problems if one.source != f"Secret {source.namespace}/{source.secret}")
        if not problems:
            raise DryRunError("the Secret with the credentials is not valid") from exc
        return problems
    return tuple(run_gate(suite_of(loaded), binary, scratch=scratch))
