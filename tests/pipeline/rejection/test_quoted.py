"""No problem quotes a line that derives from a Secret, even if HAProxy or the parser does."""

import base64
from pathlib import Path

import pytest

from haptic_trio.messages import Quarantined
from haptic_trio.pipeline.rejection.errors import RejectedError
from tests.support.components.pipeline import HEAD, Bench
from tests.support.kubernetes import service

SECRET = "S3CRET-word"
TEMPLATE = (
    HEAD
    + """\
    http-request return status 200
{% each secret in resources.planted as "planted" %}
backend planted
    LINE
{% endeach %}
"""
)
WATCHED = {
    "planted": {"apiVersion": "v1", "resources": "secrets", "indexBy": ["metadata.namespace", "metadata.name"]},
    "services": {"apiVersion": "v1", "resources": "services", "indexBy": ["metadata.namespace", "metadata.name"]},
}


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "line",
    [
        "http-request set-header x-key y {{ secret.data.key | b64decode | word }}",
        "balance {{ secret.data.key | b64decode | word }}",
        "http-request deny if { src {{ secret.data.key | b64decode | word }} }",
        "{{ secret.data.key | b64decode | name }} on",
        "http-request set-header x-key y%[str({{ secret.data.key | b64decode | name }}),map(/none)]",
    ],
)
async def test_problem_of_a_line_with_a_secret_does_not_quote_it(line: str, haproxy_binary: Path) -> None:
    bench = Bench(haproxy_binary, TEMPLATE.replace("LINE", line), watchedResources=WATCHED)
    key = base64.b64encode(SECRET.encode()).decode()
    bench.stores["planted"].upsert(
        {"kind": "Secret", "metadata": {"namespace": "default", "name": "planted"}, "data": {"key": key}}
    )

    await bench.run()

    (event,) = (event for event in bench.reported() if isinstance(event, Quarantined))
    assert event.problem.line
    assert "planted" in event.problem.subject
    assert SECRET not in repr(event)


def with_secret_and_service(binary: Path, template: str) -> Bench:
    """Return a pipeline whose *template* finds a Secret and a Service."""
    bench = Bench(binary, f"{HEAD}    http-request return status 200\n{template}", watchedResources=WATCHED)
    key = base64.b64encode(SECRET.encode()).decode()
    bench.stores["planted"].upsert(
        {"kind": "Secret", "metadata": {"namespace": "default", "name": "planted"}, "data": {"key": key}}
    )
    bench.stores["services"].upsert(service("web"))
    return bench


@pytest.mark.haproxy
@pytest.mark.parametrize("line", ["http-request set-header x-key y {{ key | word }}", "{{ key | word }} a"])
async def test_nor_does_one_of_a_line_outside_of_fragments(line: str, haproxy_binary: Path) -> None:
    loop = "{% for secret in resources.planted.list() %}{% set key = secret.data.key | b64decode %}"
    bench = with_secret_and_service(haproxy_binary, f"{loop}\nbackend planted\n    {line}\n{{% endfor %}}\n")

    with pytest.raises(RejectedError) as caught:
        await bench.run()

    assert caught.value.problems[0].line
    assert SECRET not in f"{caught.value} {caught.value.problems}"


@pytest.mark.haproxy
async def test_nor_does_one_that_has_no_line(haproxy_binary: Path) -> None:
    line = "use-server {{ secret.data.key | b64decode | word }} if TRUE"
    bench = with_secret_and_service(haproxy_binary, TEMPLATE.removeprefix(HEAD).replace("LINE", line))

    with pytest.raises(RejectedError, match="backend 'planted' : unable to find server '…'") as caught:
        await bench.run()

    assert not caught.value.problems[0].line
    assert SECRET not in f"{caught.value} {caught.value.problems} {bench.reported()}"


@pytest.mark.haproxy
async def test_words_of_templates_are_left_where_a_message_has_no_line(haproxy_binary: Path) -> None:
    lines = (
        "http-request set-var(txn.key) str({{ secret.data.key | b64decode | word }})\n    use-server nowhere if TRUE"
    )
    bench = with_secret_and_service(haproxy_binary, TEMPLATE.removeprefix(HEAD).replace("LINE", lines))

    with pytest.raises(RejectedError, match="backend 'planted' : unable to find server 'nowhere'"):
        await bench.run()


@pytest.mark.haproxy
async def test_words_of_templates_are_left_in_lines_outside_of_fragments(haproxy_binary: Path) -> None:
    lookup = "{% set key = (resources.planted.list() | first).data.key %}"
    bench = with_secret_and_service(haproxy_binary, f"{lookup}\nbackend planted\n    no-such-keyword on\n")

    with pytest.raises(RejectedError, match="unknown keyword 'no-such-keyword'"):
        await bench.run()


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "line",
    [
        "http-request set-header X-Api-Key a S3CRET",
        "http-request set-var(txn.token) str(S3CRET) S3CRET",
        "http-request return status 200 hdr x-token S3CRET S3CRET",
        "http-request set-header X-Api-Key %[str(S3CRET)",
        "http-request deny if { req.hdr(x-api-key) -m foo S3CRET }",
    ],
)
@pytest.mark.parametrize("each", ['{% each service in resources.services as "one" %}\nLINE\n{% endeach %}', "LINE"])
async def test_problem_of_a_line_with_the_name_of_a_secret_does_not_quote_what_follows(
    line: str, each: str, haproxy_binary: Path
) -> None:
    bench = with_secret_and_service(haproxy_binary, each.replace("LINE", f"backend one\n    {line}\n"))

    try:
        await bench.run()
        problems = [event.problem for event in bench.reported() if isinstance(event, Quarantined)]
    except RejectedError as exc:
        problems = list(exc.problems)

    assert any(problem.line for problem in problems)
    assert "S3CRET" not in f"{problems} {bench.reported()}"
