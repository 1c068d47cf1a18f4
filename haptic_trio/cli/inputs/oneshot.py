"""One snapshot of a cluster and one render of it, for `render`, `validate`, `diff` and `explain`."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import trio

from haptic_trio.channels import EventBuffer
from haptic_trio.cli.inputs.cluster import as_given, begin_reading, hint_for_missing, make_cluster, places_of
from haptic_trio.cli.inputs.options import InputOptions
from haptic_trio.cli.output.findings import Area, Finding, find
from haptic_trio.cli.output.progress import SILENT, Steps
from haptic_trio.config.load import ConfigSource, LoadedConfig, load_config
from haptic_trio.config.model import Config
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.dataplane.binary import find_haproxy, need_supported
from haptic_trio.errors import HapticError, Problem, ProblemsError
from haptic_trio.explain.site import Site
from haptic_trio.explain.template_lines import with_origins
from haptic_trio.haproxy.model import Config as ConfigModel
from haptic_trio.haproxy.model import Generation
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.httpstore.events import ContentEvent, FetchProblem, HttpContentRejected
from haptic_trio.k8s.client import Client, NotFoundError
from haptic_trio.k8s.manifests.directory import DirectoryCluster
from haptic_trio.k8s.reflector import ResourceChanged, run_reflector
from haptic_trio.k8s.resource import Places, Resource, ResourceType, nowhere, ref_of
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.contents.store import open_contents
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.pipeline.validate import Validator
from haptic_trio.stages.config_watch import CONFIG_MAPS, SECRETS
from haptic_trio.stages.gc_tuning import Collections
from haptic_trio.stages.watch_resources import selection_of

NOT_FOUND: Final = "not found"
READ_LIMIT = 60.0
"""Seconds that reading the cluster may take."""
_COLLECTIONS: Final = Collections(wanted=True)


class IncompleteError(HapticError):
    """The cluster could not be read completely in time; retry once the reported causes are gone."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        causes = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"the cluster could not be read within {READ_LIMIT:g} s{causes}")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Objects and configuration of a cluster at one moment."""

    loaded: LoadedConfig | None
    """None if the configuration is invalid or missing; the findings give the reason."""
    stores: Stores
    findings: tuple[Finding, ...]
    manifests: tuple[Resource, ...] = ()
    """All objects of a directory of manifests, watched or not."""
    places: Places = nowhere
    """Places of objects in manifest files."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of rendering a snapshot."""

    generation: Generation | None
    """None if there is no valid configuration; the findings give the reason."""
    findings: tuple[Finding, ...]
    site: Site | None = None
    """Provenance and secrecy of its lines; None without a generation."""


class ParseOnly(Validator):
    """A validator that parses and does not run `haproxy -c`."""

    async def check(
        self,
        generation: Generation,  # noqa: ARG002
        rendered: Rendered,  # noqa: ARG002
        *,
        idle: bool = False,  # noqa: ARG002
    ) -> tuple[Problem, ...]:
        """Accept every generation."""
        return ()


async def read_snapshot(options: InputOptions, steps: Steps = SILENT, *, places: bool = False) -> Snapshot:
    """Return the contents of the cluster, with the problems of its manifests and its configuration.

    With *places*, also the places of all objects, which take memory. Raises `IncompleteError` if a kind cannot be read.
    """
    problems: dict[str, tuple[Problem, ...]] = {}
    cluster = make_cluster(options, problems.__setitem__)
    begin_reading(steps, cluster)
    findings: list[Finding] = []
    stores = Stores(())
    with _COLLECTIONS.paused():
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.run)
            loaded: LoadedConfig | None = None
            try:
                loaded = await _load(cluster, options.source)
            except ProblemsError as exc:
                findings = find(Area.CONFIGURATION, [_unread(problem, problems, cluster) for problem in exc.problems])
            if loaded is not None:
                stores = await _fill_stores(cluster, loaded.config, problems, steps)
            nursery.cancel_scope.cancel(reason="everything has been read")
    # An API server holds only well-formed objects; a missing optional kind is a warning.
    is_warning = options.manifests is None
    manifests = [
        finding for found in problems.values() for finding in find(Area.MANIFESTS, found, is_warning=is_warning)
    ]
    objects = cluster.objects() if isinstance(cluster, DirectoryCluster) else ()
    return Snapshot(
        loaded=loaded,
        stores=stores,
        findings=(*manifests, *findings),
        manifests=objects,
        places=places_of(options, cluster, stays=False) if places else nowhere,
    )


def _unread(problem: Problem, manifests: Mapping[str, tuple[Problem, ...]], cluster: Client) -> Problem:
    """Return *problem*; a ConfigMap that is not found may be in a file of *manifests* that cannot be read."""
    if problem.message != NOT_FOUND:
        return problem
    hint = hint_for_missing(cluster, problem.hint)
    if any(manifests.values()):
        hint = "correct the files first: it may be in one of them"
    return msgspec.structs.replace(problem, hint=hint)


async def read_overlaid(options: InputOptions, changed: Path, steps: Steps = SILENT) -> Snapshot:
    """Return the contents of the cluster as if the manifests in the directory *changed* were applied to it.

    Raises `IncompleteError` if a kind cannot be read.
    """
    found: dict[str, tuple[Problem, ...]] = {}
    below = make_cluster(options, found.__setitem__)
    above = DirectoryCluster(changed, report=as_given(found.__setitem__, changed))
    with _COLLECTIONS.paused():
        async with trio.open_nursery() as nursery:
            begin_reading(steps, below)
            await nursery.start(below.run)
            begin_reading(steps, above)
            await nursery.start(above.run)
            loaded: LoadedConfig | None = None
            stores = Stores(())
            findings: list[Finding] = []
            try:
                loaded = await _load_overlaid(above, below, options.source)
            except ProblemsError as exc:
                findings = find(Area.CONFIGURATION, exc.problems)
            if loaded is not None:
                stores = await _fill_stores(below, loaded.config, found, steps)
                for name, store in (await _fill_stores(above, loaded.config, found)).items():
                    for resource in store.list():
                        stores[name].upsert(resource)
            nursery.cancel_scope.cancel(reason="everything has been read")
    manifests = [finding for problems in found.values() for finding in find(Area.MANIFESTS, problems)]
    return Snapshot(loaded=loaded, stores=stores, findings=(*manifests, *findings))


async def read_config(options: InputOptions) -> LoadedConfig:
    """Return the configuration in the cluster; raises `ProblemsError` if it is invalid or missing.

    If it is missing, the problems of manifests, one of which may hold it, are raised as well.
    """
    manifests: dict[str, tuple[Problem, ...]] = {}
    cluster = make_cluster(options, manifests.__setitem__)
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        outcome: LoadedConfig | ProblemsError
        try:
            outcome = await _load(cluster, options.source)
        except ProblemsError as exc:
            # Raised here, the nursery would wrap it in an exception group.
            outcome = exc
            if any(problem.message == NOT_FOUND for problem in exc.problems):
                missing = [_unread(problem, manifests, cluster) for problem in exc.problems]
                outcome = ProblemsError([*chain.from_iterable(manifests.values()), *missing])
        nursery.cancel_scope.cancel(reason="everything has been read")
    if isinstance(outcome, ProblemsError):
        raise outcome
    return outcome


async def _load(cluster: Client, source: ConfigSource) -> LoadedConfig:
    return await _load_overlaid(cluster, cluster, source)


async def _load_overlaid(above: Client, below: Client, source: ConfigSource) -> LoadedConfig:
    """Return the configuration; ConfigMap and Secret come from *above*, or from *below* if *above* has none."""

    async def get(resource_type: ResourceType, name: str) -> Resource | None:
        found = await _get(above, resource_type, source.namespace, name)
        return found if found is not None else await _get(below, resource_type, source.namespace, name)

    config_map = await get(CONFIG_MAPS, source.config_map)
    if config_map is None:
        raise ProblemsError(
            [
                Problem(
                    message=NOT_FOUND,
                    source=f"ConfigMap {source.namespace}/{source.config_map}",
                    hint="add it to the manifests, or select another one with --namespace and --config-map",
                )
            ]
        )
    secret = await get(SECRETS, source.secret)
    return await trio.to_thread.run_sync(load_config, config_map, secret)


async def _get(cluster: Client, resource_type: ResourceType, namespace: str, name: str) -> Resource | None:
    try:
        return await cluster.get(resource_type, namespace, name)
    except NotFoundError:
        return None


async def _fill_stores(
    cluster: Client, config: Config, problems: dict[str, tuple[Problem, ...]], steps: Steps = SILENT
) -> Stores:
    stores = Stores(
        Store(name, watched.index_by, (*config.watched_resources_ignore_fields, *watched.ignore_fields))
        for name, watched in config.watched_resources.items()
    )
    steps.begin("reading objects", lambda: (sum(map(len, stores.values())), 0))

    async def give_up() -> None:
        await trio.sleep(READ_LIMIT)
        raise IncompleteError(tuple(problem for each in problems.values() for problem in each))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        for name, store in stores.items():
            selection = selection_of(config.watched_resources[name])
            await nursery.start(
                partial(run_reflector, cluster, selection, (store,), _ignore_change, report=problems.__setitem__)
            )
        found = dict(problems)
        # No more changes reach the stores.
        nursery.cancel_scope.cancel(reason="every first list is in its store")
    # A watch withdraws its problems when it is cancelled.
    problems.update(found)
    return stores


async def _ignore_change(_change: ResourceChanged) -> None:
    await trio.lowlevel.checkpoint()


async def make_validator(config: Config, *, haproxy: str | None, check: bool) -> Validator:
    """Return a validator that parses, and runs `haproxy -c` if *check* is set.

    Raises `HaproxyNotFoundError` if *check* is set and there is no HAProxy.
    """
    limit = config.validation.check_timeout
    if not check:
        return ParseOnly(Path(), check_timeout=limit)
    binary = find_haproxy(haproxy)
    # Reject other programs: one that always exits with 0 would pass every check.
    await trio.to_thread.run_sync(need_supported, binary)
    return Validator(binary, check_timeout=limit)


async def render_snapshot(
    snapshot: Snapshot,
    *,
    haproxy: str | None,
    check: bool,
    memory: ContentMemory | None = None,
    steps: Steps = SILENT,
) -> Outcome:
    """Render and validate a snapshot whose configuration is valid; with *check*, also with `haproxy -c`.

    Contents that templates fetch are taken from *memory*, or fetched once and
    added to it. Raises `HaproxyNotFoundError` if *check* is set and there is
    no HAProxy.
    """
    assert snapshot.loaded is not None
    config = snapshot.loaded.config
    begin_rendering(steps, snapshot.stores, check=check)
    happened: list[ContentEvent] = []
    contents = open_contents(config, happened.append, memory)
    try:
        renderer = await trio.to_thread.run_sync(Renderer, config, contents)
    except ProblemsError as exc:
        return Outcome(generation=None, findings=tuple(find(Area.CONFIGURATION, exc.problems)))
    validator = await make_validator(config, haproxy=haproxy, check=check)
    quarantine = Quarantine()
    pipeline = Pipeline(snapshot.stores, renderer, validator, quarantine, EventBuffer())
    try:
        with _COLLECTIONS.paused():
            valid = await pipeline.run("oneshot")
    except RejectedError as exc:
        problems = await _with_origins(exc.problems, snapshot, renderer, quarantine)
        findings = (*_found(quarantine), *_fetched(happened), *find(Area.OUTPUT, problems))
        return Outcome(generation=None, findings=findings)
    warnings = find(Area.OUTPUT, valid.warnings, is_warning=True)
    # Returns the kept output.
    rendered = await renderer.render(snapshot.stores, quarantine.recall())
    return Outcome(
        generation=valid.generation,
        findings=(*_found(quarantine), *_fetched(happened), *warnings),
        site=site_of(config, snapshot.stores, renderer, rendered),
    )


def begin_rendering(steps: Steps, stores: Stores, *, check: bool) -> None:
    """Show that *stores* are rendered and, with *check*, checked by `haproxy -c`."""
    if steps is not SILENT:
        steps.begin(f"rendering{' and checking' if check else ''} {count_objects(stores):,} objects")


def count_objects(stores: Stores) -> int:
    """Return the number of objects in *stores*, several of which may hold the same object."""
    return len({ref_of(resource) for store in stores.values() for resource in store.list()})


def site_of(
    config: Config,
    stores: Stores,
    renderer: Renderer,
    rendered: Rendered,
    parsed: ConfigModel | None = None,
    places: Places = nowhere,
) -> Site:
    """Return the site for explanations of *rendered*, the newest output of *renderer* for *stores*."""
    provenance = renderer.provenance()
    assert provenance is not None
    return Site(
        provenance=provenance,
        texts=rendered.texts,
        files=rendered.files,
        rejections=rendered.rejections,
        warnings=rendered.warnings,
        stores=stores,
        plurals={name: watched.resources for name, watched in config.watched_resources.items()},
        templates=template_set(config).texts,
        context=config.templating.extra_context,
        config=parsed,
        places=places,
    )


async def _with_origins(
    problems: tuple[Problem, ...], snapshot: Snapshot, renderer: Renderer, quarantine: Quarantine
) -> tuple[Problem, ...]:
    assert snapshot.loaded is not None
    try:
        # Returns the kept output of the rejected configuration.
        rendered = await renderer.render(snapshot.stores, quarantine.recall())
    except RejectedError:
        return problems
    templates = template_set(snapshot.loaded.config).texts
    layers = snapshot.loaded.layers
    own = template_set(layers[0].value).texts if layers else {}
    return tuple(with_origins(problems, rendered.texts[MAIN_TEMPLATE].text, templates, own))


def _fetched(happened: Iterable[ContentEvent]) -> Iterator[Finding]:
    for one in happened:
        match one:
            case FetchProblem(_, Problem() as problem):
                yield from find(Area.OUTPUT, [problem], is_warning=True)
            case HttpContentRejected():
                problem = msgspec.structs.replace(
                    one.problem, message=f"the content of {one.url} was rejected: {one.problem.message}"
                )
                yield from find(Area.OUTPUT, [problem])


def _found(quarantine: Quarantine) -> list[Finding]:
    warnings = [
        Problem(message=f"{warning.reason}: {warning.message}", subject=str(warning.subject))
        for warning in quarantine.warnings
    ]
    return [*_quarantined(quarantine), *find(Area.OBJECT, warnings, is_warning=True)]


def _quarantined(quarantine: Quarantine) -> list[Finding]:
    return find(
        Area.OBJECT,
        [
            entry.problem if entry.problem.subject else msgspec.structs.replace(entry.problem, subject=str(entry.ref))
            for entry in quarantine.objects
        ],
    )
