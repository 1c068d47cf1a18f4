"""Two phases, one check at a time, and the way back from a message to template and object."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.haproxy.model import Generation
from haptic_trio.pipeline.rejection.errors import RejectedError, UndecidedError
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.pipeline.validate import Validator
from tests.support.components.pipeline import HEAD, config_of, stores_of
from tests.support.kubernetes import service
from tests.support.processes.scripts import script

pytestmark = pytest.mark.process

BACKENDS = (
    HEAD
    + """\
{% for service in resources.services.list() %}
{% fragment "backend" for service %}
backend {{ ident(service.metadata.name) }}
    {{ service.spec.keyword | word }} {{ service.spec.value | word }}
{% endfragment %}
{% endfor %}
"""
)
CERTIFICATES = {
    "all.txt": {
        "template": """\
{% for service in resources.services.list() %}
{% fragment "certificate" for service %}
{% set bundle %}rubbish of {{ ident(service.metadata.name) }}
{% endset %}
{{ files.cert(ident(service.metadata.name) ~ ".pem", bundle) }}
{% endfragment %}
{% endfor %}
"""
    }
}


async def rendered_from(template: str, *objects: dict[str, Any], **fields: Any) -> Rendered:
    config = config_of(template, **fields)
    stores = stores_of(config)
    for resource in objects:
        stores["services"].upsert(resource)
    return await Renderer(config).render(stores)


async def validate(binary: Path, rendered: Rendered, *, check_timeout: float = 20) -> tuple[Generation, Any]:
    validator = Validator(binary, check_timeout=check_timeout)
    generation = await validator.parse(rendered)
    return generation, await validator.check(generation, rendered)


async def rejection_of(binary: Path, rendered: Rendered, **options: Any) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        await validate(binary, rendered, **options)
    return caught.value


@pytest.mark.haproxy
async def test_valid_configuration_is_a_generation_with_its_files(haproxy_binary: Path) -> None:
    rendered = await rendered_from(HEAD, maps={"host.map": {"template": "a b\n"}})

    generation, warnings = await validate(haproxy_binary, rendered)

    assert generation.text == rendered.text
    assert list(generation.files) == ["maps/host.map"]
    assert [section.kind for section in generation.config.sections] == ["global", "defaults", "frontend"]
    assert warnings == ()


async def test_error_of_phase_one_names_line_template_and_object(tmp_path: Path) -> None:
    rendered = await rendered_from(
        BACKENDS,
        service("api", keyword="balance", value="source"),
        service("web", keyword="frobnicate", value="x"),
    )

    error = await rejection_of(script(tmp_path / "unused", "exit 9"), rendered)

    [problem] = error.problems
    assert error.phase == "parse"
    assert (problem.source, problem.subject) == ("haproxy.cfg", "Service default/web")
    assert rendered.text.splitlines()[problem.line - 1] == "    'frobnicate' 'x'"
    assert "made by fragment 'backend', haproxy.cfg:11" in problem.hint
    assert [(key.kind, key.name) for key in error.suspects] == [("Service", "web")]


async def test_error_outside_every_fragment_has_a_line_and_no_object(tmp_path: Path) -> None:
    rendered = await rendered_from(HEAD + "frontend x\n    frobnicate\n", service("web"))

    error = await rejection_of(script(tmp_path / "unused", "exit 9"), rendered)

    [problem] = error.problems
    assert (problem.line, problem.subject) == (11, "")
    assert error.suspects == {}


@pytest.mark.haproxy
async def test_error_of_haproxy_names_line_template_and_object(haproxy_binary: Path) -> None:
    rendered = await rendered_from(
        BACKENDS,
        service("api", keyword="balance", value="source"),
        service("web", keyword="balance", value="nonsense"),
    )

    error = await rejection_of(haproxy_binary, rendered)

    problem = error.problems[0]
    assert error.phase == "check"
    assert (problem.source, problem.subject) == ("haproxy.cfg", "Service default/web")
    assert rendered.text.splitlines()[problem.line - 1] == "    'balance' 'nonsense'"
    assert "made by fragment 'backend', haproxy.cfg:11" in problem.hint
    assert [key.name for key in error.suspects] == ["web"]


@pytest.mark.haproxy
async def test_all_that_haproxy_rejects_is_reported_at_once(haproxy_binary: Path) -> None:
    rendered = await rendered_from(
        BACKENDS, *(service(f"s{number}", keyword="balance", value=f"nonsense{number}") for number in range(4))
    )

    error = await rejection_of(haproxy_binary, rendered)

    assert sorted(key.name for key in error.suspects) == ["s0", "s1", "s2", "s3"]


@pytest.mark.haproxy
async def test_rejected_file_is_laid_to_the_object_that_made_it_and_not_to_the_line_that_names_it(
    haproxy_binary: Path,
) -> None:
    rendered = await rendered_from(
        HEAD + "frontend https\n    bind 127.0.0.1:2 ssl crt-list ssl/all.txt\n",
        service("web"),
        service("shop"),
        crtLists=CERTIFICATES,
    )

    error = await rejection_of(haproxy_binary, rendered)

    # HAProxy names one bad certificate at a time.
    [suspect] = error.suspects
    assert suspect.name in {"web", "shop"}
    assert suspect.fragment == "certificate"
    assert f"ssl/{suspect.name}.pem" in error.suspects[suspect].message


@pytest.mark.haproxy
async def test_warning_of_haproxy_is_located_and_rejects_nothing(haproxy_binary: Path) -> None:
    rendered = await rendered_from(
        HEAD.replace("    timeout client 1s\n", "")
        + "{% for service in resources.services.list() %}{% fragment 'f' for service %}"
        "frontend web\n    bind 127.0.0.1:2\n{% endfragment %}{% endfor %}",
        service("web"),
    )

    generation, warnings = await validate(haproxy_binary, rendered)

    assert generation.text == rendered.text
    assert "timeouts" in warnings[0].message
    assert all("/" not in warning.source for warning in warnings)


def checking(path: Path, command: str) -> Path:
    """A program in HAProxy's place that does *command* when it is to check."""
    return script(path, f'case " $* " in *" -c "*) {command};; esac')


@pytest.mark.parametrize(("command", "said"), [("exec sleep 60", "did not end within 0.2 s"), ("kill -9 $$", "killed")])
async def test_check_that_does_not_end_blames_no_object(tmp_path: Path, command: str, said: str) -> None:
    rendered = await rendered_from(BACKENDS, service("web", keyword="balance", value="source"))

    with trio.fail_after(30):
        error = await rejection_of(checking(tmp_path / "haproxy", command), rendered, check_timeout=0.1)

    assert isinstance(error, UndecidedError)
    assert (error.phase, error.suspects) == ("check", {})
    [problem] = error.problems
    assert (problem.subject, problem.line) == ("", 0)
    assert said in problem.message
    assert "no object is quarantined" in problem.hint


async def test_check_that_takes_too_long_is_repeated_with_more_time(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    slow_once = checking(tmp_path / "haproxy", f"[ -e {seen} ] || {{ : >{seen}; exec sleep 60; }}")

    _generation, warnings = await validate(slow_once, await rendered_from(HEAD), check_timeout=1)

    assert seen.exists()
    assert warnings == ()


async def test_check_that_cannot_be_run_says_so(tmp_path: Path) -> None:
    error = await rejection_of(tmp_path / "nowhere", await rendered_from(HEAD))

    assert error.phase == "check"
    assert "could not be run" in error.problems[0].message
    assert error.suspects == {}


async def test_checks_run_one_at_a_time(tmp_path: Path) -> None:
    # real time: two checks at once would overlap
    alone = script(tmp_path / "haproxy", f"mkdir {tmp_path}/busy || exit 1\nsleep 0.03\nrmdir {tmp_path}/busy")
    validator = Validator(alone, check_timeout=20)
    rendered = await rendered_from(HEAD)
    generation = await validator.parse(rendered)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(validator.check, generation, rendered)


async def test_private_directory_holds_every_file_under_its_name_and_is_gone_afterwards(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    lister = script(tmp_path / "haproxy", f'cd "$(dirname "$5")" && find . -type f | sort > {tmp_path}/seen')
    rendered = await rendered_from(
        HEAD, maps={"host.map": {"template": "a b\n"}}, sslCertificates={"web.pem": {"template": "key\n"}}
    )
    validator = Validator(lister, check_timeout=20, scratch=scratch)

    await validator.check(await validator.parse(rendered), rendered)

    seen = (tmp_path / "seen").read_text().split()
    assert {"./haproxy.cfg", "./maps/host.map", "./ssl/web.pem"} <= set(seen)
    assert list(scratch.iterdir()) == []


async def test_cancelled_check_leaves_neither_process_nor_directory(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    started = tmp_path / "started"
    os.mkfifo(started)
    hanging = checking(tmp_path / "haproxy", f"echo $$ > {started}; exec sleep 60")
    rendered = await rendered_from(HEAD)
    validator = Validator(hanging, check_timeout=60, scratch=scratch)
    generation = await validator.parse(rendered)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(validator.check, generation, rendered)
            # Opens once the script opens it, too.
            pid = await trio.to_thread.run_sync(started.read_text, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()

    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    assert list(scratch.iterdir()) == []
