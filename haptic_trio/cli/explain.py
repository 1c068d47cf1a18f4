"""`explain`: finds the template, fragment and object that produced a line, backend or route, and the reverse."""

import sys
from collections.abc import Sequence
from functools import partial

import click
import msgspec
import trio

from haptic_trio.channels import EventBuffer
from haptic_trio.cli.inputs.choices import output_option
from haptic_trio.cli.inputs.oneshot import Snapshot, begin_rendering, make_validator, read_snapshot, site_of
from haptic_trio.cli.inputs.options import InputOptions, input_options
from haptic_trio.cli.inputs.source_map import placed
from haptic_trio.cli.output.answer_rows import one_line
from haptic_trio.cli.output.explain import print_answer
from haptic_trio.cli.output.failures import print_failures
from haptic_trio.cli.output.findings import Area, Finding, find, findings_to_json, make_console, print_findings
from haptic_trio.cli.output.progress import showing_steps
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.explain.answers import to_json
from haptic_trio.explain.resolve import explain as answer_to
from haptic_trio.explain.search import search as search_for
from haptic_trio.explain.site import Site
from haptic_trio.explain.targets import MalformedTargetError, TargetError
from haptic_trio.haproxy.model import Config
from haptic_trio.httpstore.events import ContentEvent
from haptic_trio.pipeline.contents.store import open_contents
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Renderer


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered site, and the problems if it is not a valid configuration."""

    site: Site
    problems: tuple[Problem, ...] = ()


@click.command()
@click.argument("target", nargs=-1)
@input_options
@click.option("--check", is_flag=True, help="Also check the result with `haproxy -c` and report its errors.")
@click.option("--search", metavar="TEXT", help="Instead of TARGET: list all lines that contain TEXT, ignoring case.")
@output_option
def explain(
    *,
    target: tuple[str, ...],
    source: InputOptions,
    check: bool,
    search: str | None,
    output_format: str,
) -> None:
    """Show which template, fragment and object produced TARGET and what TARGET depends on; or the output of an object.

    \b
    TARGET is one of
      haproxy.cfg:120              a line; HAProxy's form [haproxy.cfg:120] works, too
      maps/path-exact.map:7        a line of a file; the end of its path is enough
      maps/path-exact.map          a file
      backend default_shop_80      a section of haproxy.cfg
      shop.example.com             a host: its routes in order, and its certificates
      shop.example.com/cart        a request: the matching route, and those after it
      https://shop.example.com/a   the same
      certificate shop.example.com the certificates for a server name
      Ingress default/shop         an object: its output, and the fragments that use it
      service default/shop         kinds ignore case; plurals work, too

    A name alone is enough if it is unambiguous. The cluster is read and
    rendered once; nothing is deployed. Text that derives from a Secret is
    shown as a hash.

    \b
      haptic-trio explain --manifests DIR haproxy.cfg:42
      haptic-trio explain --kubeconfig FILE shop.example.com/cart
      haptic-trio explain --in-cluster Service default/shop --output json
      haptic-trio explain --manifests DIR --search shop.example.com

    Exit codes: 0 success, also if HAProxy answers the request with an error
    such as 404 or 503, 1 TARGET does not exist or is ambiguous, or nothing
    could be rendered, 2 the command failed.
    """
    if bool(target) == bool(search):
        raise click.UsageError("give TARGET or --search TEXT")
    as_json = output_format == "json"
    with showing_steps(sys.stderr) as steps:
        snapshot = trio.run(partial(read_snapshot, source, steps, places=True))
        explained, failures = None, list[Finding]()
        if snapshot.loaded is not None:
            begin_rendering(steps, snapshot.stores, check=check)
            try:
                explained = trio.run(partial(_render, snapshot, haproxy=source.haproxy, check=check))
            except ProblemsError as exc:
                failures = find(Area.OUTPUT, exc.problems)
    if explained is None:
        _print_findings(placed((*snapshot.findings, *failures), source), as_json=as_json)
        sys.exit(1)
    problems = placed((*snapshot.findings, *find(Area.OUTPUT, explained.problems)), source)
    try:
        answer = search_for(explained.site, search) if search else answer_to(explained.site, " ".join(target))
    except TargetError as exc:
        _print_target_error(exc, problems, as_json=as_json)
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


def _print_target_error(error: TargetError, problems: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        fields = {"message": error.message, "suggestions": error.suggestions, "hint": error.hint}
        failure = {name: value for name, value in fields.items() if value}
        print_failures([failure, *findings_to_json(problems)])
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
    """Return the rendered *snapshot*, valid or not; raises `ProblemsError` if nothing can be rendered."""
    assert snapshot.loaded is not None
    config = snapshot.loaded.config
    contents = open_contents(config, _ignore)
    renderer = await trio.to_thread.run_sync(Renderer, config, contents)
    validator = await make_validator(config, haproxy=haproxy, check=check)
    quarantine = Quarantine()
    parsed: Config | None = None
    problems: tuple[Problem, ...] = ()
    try:
        valid = await Pipeline(snapshot.stores, renderer, validator, quarantine, EventBuffer()).run("explain")
        parsed = valid.generation.config
    except RejectedError as exc:
        problems = exc.problems
    try:
        # A rejected configuration can be explained, too; this returns the kept output without rendering again.
        rendered = await renderer.render(snapshot.stores, quarantine.recall())
    except RejectedError as exc:
        raise ProblemsError(exc.problems) from exc
    if parsed is None:
        try:
            parsed = (await validator.parse(rendered)).config
        except RejectedError:
            parsed = None
    site = site_of(config, snapshot.stores, renderer, rendered, parsed, snapshot.places)
    return Explained(site=site, problems=problems)
