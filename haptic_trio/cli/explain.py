"""`explain`: which template, fragment and object made a line, a backend or a route; what an object made."""

import sys
from collections.abc import Sequence
from functools import partial

import click
import msgspec
import trio

from haptic_trio.channels import Facts
from haptic_trio.cli.inputs.choices import output_option
from haptic_trio.cli.inputs.oneshot import Snapshot, make_validator, read_snapshot, site_of
from haptic_trio.cli.inputs.options import InputOptions, input_options
from haptic_trio.cli.inputs.source_map import placed
from haptic_trio.cli.output.explain import one_line, print_answer
from haptic_trio.cli.output.failures import print_failures
from haptic_trio.cli.output.findings import Area, Finding, find, findings_to_json, make_console, print_findings
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.explain.answers import to_json
from haptic_trio.explain.resolve import explain as answer_to
from haptic_trio.explain.site import Site
from haptic_trio.explain.targets import MalformedTargetError, TargetError
from haptic_trio.haproxy.model import Config
from haptic_trio.httpstore.events import ContentEvent
from haptic_trio.pipeline.contents.store import open_contents
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.errors import RefusedError
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Renderer


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked, and why no valid configuration could be made, if so."""

    site: Site
    problems: tuple[Problem, ...] = ()


@click.command()
@click.argument("target", nargs=-1, required=True)
@input_options
@click.option("--check", is_flag=True, help="Have HAProxy check the result, too: what it refuses is told.")
@output_option
def explain(
    *,
    target: tuple[str, ...],
    source: InputOptions,
    check: bool,
    output_format: str,
) -> None:
    """Say which template, fragment and object made TARGET, and what it depends on; or what an object made.

    \b
    TARGET is one of
      haproxy.cfg:120              a line, also as HAProxy writes it: [haproxy.cfg:120]
      maps/path-exact.map:7        a line of a file, which may be named by its end
      maps/path-exact.map          a file
      backend default_shop_80      a section of haproxy.cfg
      shop.example.com             a host: its routes, in order, and its certificates
      shop.example.com/cart        a request: the entry that wins, and those that would
      https://shop.example.com/a   the same
      certificate shop.example.com the certificates for a server name
      Ingress default/shop         an object: what it made, and who looks it up
      service default/shop         kinds in any case, and plurals

    A name alone is enough where it means one thing. The cluster is read and
    rendered once; no HAProxy is touched. What derives from a Secret is shown
    as its hash.

    \b
      haptic-trio explain --manifests DIR haproxy.cfg:42
      haptic-trio explain --kubeconfig FILE shop.example.com/cart
      haptic-trio explain --in-cluster Service default/shop --output json

    Exit codes: 0 explained, 1 there is no such thing, or several, or nothing
    could be rendered, 2 the command could not do its work.
    """
    as_json = output_format == "json"
    snapshot = trio.run(read_snapshot, source)
    if snapshot.loaded is None:
        _print_findings(placed(snapshot.findings, source), as_json=as_json)
        sys.exit(1)
    explained = trio.run(partial(_render, snapshot, haproxy=source.haproxy, check=check))
    problems = find(Area.OUTPUT, explained.problems)
    try:
        answer = answer_to(explained.site, " ".join(target))
    except TargetError as exc:
        _print_refusal(exc, problems, as_json=as_json)
        sys.exit(2 if isinstance(exc, MalformedTargetError) else 1)
    if as_json:
        document = to_json(answer) | ({"problems": findings_to_json(problems)} if problems else {})
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        _print_findings(problems)
        print_answer(make_console(sys.stdout), answer)


def _print_findings(findings: Sequence[Finding], *, as_json: bool = False) -> None:
    if as_json:
        print_failures(findings_to_json(findings))
    else:
        print_findings(make_console(sys.stderr), findings)


def _print_refusal(error: TargetError, problems: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        told = {"message": error.message, "suggestions": error.suggestions, "hint": error.hint}
        refusal = {name: value for name, value in told.items() if value}
        print_failures([refusal, *findings_to_json(problems)])
        return
    _print_findings(problems)
    click.secho(f"error: {one_line(error.message)}", fg="red", err=True)
    for number, suggestion in enumerate(error.suggestions):
        lead = "did you mean" if number == 0 else "          or"
        click.echo(f"  {lead}  {one_line(suggestion)}", err=True)
    if error.hint:
        click.echo(f"  hint: {one_line(error.hint)}", err=True)


def _ignore(_happening: ContentEvent) -> None:
    return None


async def _render(snapshot: Snapshot, *, haproxy: str | None, check: bool) -> Explained:
    """Return what is made of *snapshot*, valid or not; raises `ProblemsError` if nothing can be rendered."""
    assert snapshot.loaded is not None
    config = snapshot.loaded.config
    contents = open_contents(config, _ignore)
    renderer = await trio.to_thread.run_sync(Renderer, config, contents)
    validator = await make_validator(config, haproxy=haproxy, check=check)
    quarantine = Quarantine()
    parsed: Config | None = None
    problems: tuple[Problem, ...] = ()
    try:
        valid = await Pipeline(snapshot.stores, renderer, validator, quarantine, Facts()).run("explain")
        parsed = valid.generation.config
    except RefusedError as exc:
        problems = exc.problems
    try:
        # What is refused can be explained all the same: it is still there, and not rendered again.
        rendered = await renderer.render(snapshot.stores, quarantine.recall())
    except RefusedError as exc:
        raise ProblemsError(exc.problems) from exc
    if parsed is None:
        try:
            parsed = (await validator.parse(rendered)).config
        except RefusedError:
            parsed = None
    site = site_of(config, snapshot.stores, renderer, rendered, parsed)
    return Explained(site=site, problems=problems)
