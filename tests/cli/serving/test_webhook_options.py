"""`serve` reads the options of the webhook, and rejects options that contradict each other."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from haptic_trio.cli.serving.webhook import make_webhook, webhook_options
from haptic_trio.webhook.server import WebhookOptions

CERTIFICATE, KEY, AUTHORITIES = Path("tls.crt"), Path("tls.key"), Path("ca.crt")


def test_without_an_address_there_is_no_webhook() -> None:
    assert make_webhook(None, None, None, None, ()) is None


def test_webhook_options_are_read() -> None:
    made = make_webhook("0.0.0.0:9443", CERTIFICATE, KEY, AUTHORITIES, ("api-server",))

    assert made is not None
    assert (made.listen, made.certificate, made.key) == ("0.0.0.0:9443", CERTIFICATE, KEY)
    assert (made.authorities, made.allowed) == (AUTHORITIES, frozenset({"api-server"}))


@pytest.mark.parametrize(
    ("listen", "certificate", "key", "authorities", "clients", "message"),
    [
        (None, CERTIFICATE, KEY, None, (), "need --webhook-listen"),
        ("0.0.0.0:9443", CERTIFICATE, None, None, (), "needs --webhook-cert and --webhook-key"),
        ("0.0.0.0:9443", CERTIFICATE, KEY, None, ("api-server",), "--webhook-client needs --webhook-client-ca"),
    ],
)
def test_what_does_not_fit_together_is_rejected(
    listen: str | None,
    certificate: Path | None,
    key: Path | None,
    authorities: Path | None,
    clients: tuple[str, ...],
    message: str,
) -> None:
    with pytest.raises(click.UsageError, match=message):
        make_webhook(listen, certificate, key, authorities, clients)


def test_address_must_name_a_port() -> None:
    @click.command()
    @webhook_options
    def command(*, webhook: WebhookOptions | None) -> None:
        """Take what there is."""

    done = CliRunner().invoke(command, ["--webhook-listen", "9443", "--webhook-cert", "c", "--webhook-key", "k"])

    assert done.exit_code == 2
    assert "is not an address with a port" in done.output
