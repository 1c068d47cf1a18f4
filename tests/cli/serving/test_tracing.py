"""`serve` sends traces only if an option or an environment variable asks for them."""

import os
import sys

import click
import pytest
import structlog
import trio
from click.testing import CliRunner

from haptic_trio.cli.serving.tracing import TracingUnavailableError, otlp_option, tracing, wants_traces


@pytest.mark.process
async def test_nothing_is_imported_or_sent_unless_it_is_asked_for() -> None:
    script = (
        "import sys\n"
        "from haptic_trio.cli.main import main\n"
        "from haptic_trio.cli.serving.tracing import tracing\n"
        "import trio\n"
        "async def run():\n"
        "    async with tracing('', 'me') as observe:\n"
        "        assert observe is None\n"
        "trio.run(run)\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = await trio.run_process([sys.executable, "-c", script], env=environment, capture_stderr=True, check=False)

    assert done.stderr.decode() == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("endpoint", "environment", "wanted"),
    [
        ("", {}, False),
        ("http://127.0.0.1:4318", {}, True),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ("http://127.0.0.1:4318", {"OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_option_and_variables_decide(endpoint: str, environment: dict[str, str], wanted: bool) -> None:
    assert wants_traces(endpoint, environment) is wanted


@pytest.mark.parametrize(
    ("value", "is_accepted"),
    [
        ("http://collector:4318", True),
        ("https://[::1]:4318/otlp", True),
        ("collector:4318", False),
        ("ftp://collector", False),
        ("http://user:password@collector:4318", False),
        ("http://[::1", False),
    ],
)
def test_endpoint_is_a_url_without_credentials(value: str, is_accepted: bool) -> None:
    @click.command()
    @otlp_option
    def command(otlp_endpoint: str) -> None:
        click.echo(otlp_endpoint)

    result = CliRunner().invoke(command, ["--otlp-endpoint", value], env={"HAPTIC_OTLP_ENDPOINT": None})

    assert (result.exit_code == 0) is is_accepted
    if not is_accepted:
        assert "expected a URL such as http://collector:4318 without credentials" in " ".join(result.output.split())


async def test_without_the_extra_the_option_is_an_error_and_a_variable_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As where it is not installed: importing fails.
    monkeypatch.setitem(sys.modules, "haptic_trio.telemetry.otlp", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")

    with structlog.testing.capture_logs() as logs:
        async with tracing("", "me") as observe:
            assert observe is None
    with pytest.raises(TracingUnavailableError, match="need the extra"):
        async with tracing("http://127.0.0.1:1", "me"):
            pytest.fail("began without it")

    assert [(line["event"], line["log_level"]) for line in logs] == [("not sending traces", "warning")]
