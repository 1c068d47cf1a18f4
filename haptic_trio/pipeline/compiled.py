"""Compiled templates of a configuration, and the update of their recorded output. Blocking."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf

from haptic_trio.config.model import Config
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.haproxy.model import FileKind
from haptic_trio.httpstore.fetches import Fetches
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.pipeline.missing_dependencies import PendingSources
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.rejection.quoted import TemplateWords
from haptic_trio.pipeline.session import RenderPermit, Session
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.filters.emit import trust
from haptic_trio.templating.incremental.outputs import Recall
from haptic_trio.templating.incremental.provenance import Provenance
from haptic_trio.templating.incremental.questions import Question
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.incremental.scope import Memo, same
from haptic_trio.templating.incremental.settling.decisions import SettlingLimit, settle_files, settle_rounds
from haptic_trio.templating.incremental.takeover import Differences, settle
from haptic_trio.templating.values.limits import RenderLimits
from haptic_trio.templating.values.paths import FileKind as RegisteredKind
from haptic_trio.templating.values.paths import Paths
from haptic_trio.templating.values.subjects import Origin
from haptic_trio.templating.views import ResourcesView


def _begin_with_nothing() -> None:
    """Complete nothing: the records of the former session are of no use."""


class CompiledTemplates:
    """All templates of one configuration. Sessions hold their output."""

    def __init__(self, config: Config) -> None:
        """Compile the templates of *config*; raises a `ProblemsError` with all problems."""
        templates = template_set(config)
        self.words = TemplateWords(templates.texts.values())
        self._engine = Engine(templates.texts, snippets=templates.priorities)
        self._outputs = templates.outputs
        self._variables = {key: trust(value) for key, value in config.templating.extra_context.items()}
        settings = config.templating
        self._limits = RenderLimits(
            seconds=settings.render_timeout,
            output_bytes=settings.max_output_bytes,
            fragment_seconds=settings.fragment_timeout,
            fragment_bytes=settings.max_fragment_bytes,
            namespace_bytes=settings.max_namespace_bytes,
            backend_servers=settings.max_backend_servers,
            backend_rules=settings.max_backend_rules,
            namespace_servers=settings.max_namespace_servers,
            namespace_certificates=settings.max_namespace_certificate_lines,
            namespace_table_entries=settings.max_namespace_table_entries,
            namespace_rounds=settings.max_namespace_hash_rounds,
            total_rounds=settings.max_hash_rounds,
        )
        self._paths = Paths(
            maps_dir=config.dataplane.maps_dir,
            ssl_certs_dir=config.dataplane.ssl_certs_dir,
            general_dir=config.dataplane.general_storage_dir,
        )
        self._secrets = {name for name, watched in config.watched_resources.items() if watched.resources == "secrets"}
        self._endpoints = frozenset(
            name for name, watched in config.watched_resources.items() if watched.resources == "endpointslices"
        )

    def begin(self, stores: Mapping[str, ReadableStore], open_fetches: Callable[[ResourcesView], Fetches]) -> Session:
        """Return a new session of *stores*."""
        run = RenderRun(self._limits, paths=self._paths)
        run.secret_stores, run.endpoint_stores = frozenset(self._secrets), self._endpoints
        return Session(stores, self._variables, run, self._reads_secrets, open_fetches)

    def take_over(
        self, session: Session, former: "CompiledTemplates", before: Session, stores: frozenset[str]
    ) -> Callable[[], None]:
        """Have *session*, which is new, begin with what is still valid of *before*, a session of *former*.

        Returns what completes it; see `Session.take_over`. *stores* are those
        whose content, index or ignored fields may differ from the store of the
        same name in *before*. Does nothing if the two configurations differ in
        more than templates, variables and stores.
        """
        mine = self._outputs, self._limits, self._paths, self._secrets
        if mine != (former._outputs, former._limits, former._paths, former._secrets):  # noqa: SLF001  the two are of one class
            return _begin_with_nothing
        if session.stores.keys() != before.stores.keys():
            return _begin_with_nothing
        variables = frozenset(
            name
            for name in self._variables.keys() | former._variables.keys()  # noqa: SLF001  the two are of one class
            if name not in self._variables
            or name not in former._variables  # noqa: SLF001  the two are of one class
            or not same(former._variables[name], self._variables[name], Memo())  # noqa: SLF001  the two are of one class
        )
        changed, stale = (
            self._engine.stale_since(former._engine, names)  # noqa: SLF001  the two are of one class
            for names in (frozenset[str](), variables)
        )
        alike = Memo()
        self._engine.declare(former._engine, alike)  # noqa: SLF001  the two are of one class
        differences = Differences(changed=changed, stale=stale, variables=variables, stores=stores)
        return session.take_over(before, differences, alike)

    def dismantle(self) -> None:
        """Free the compiled templates without a collection of garbage; nothing may render any more."""
        self._engine.dismantle()

    def provenance(self, run: RenderRun) -> Provenance:
        """Return the origins of the output of *run*, which must not be rendering."""
        return Provenance(run, {output.name: output.path for output in self._outputs} | {MAIN_TEMPLATE: MAIN_TEMPLATE})

    def _reads_secrets(self, run: RenderRun, path: str, origin: Origin | None) -> bool:
        """Whether the output of *origin* in the file at *path* may derive from a Secret; see `Site.is_secret`."""
        provenance = self.provenance(run)
        asked = provenance.asked_in(provenance.output_of(path) or path)
        if origin is not None:
            if origin.subject.kind == "Secret" or provenance.outputs_secrets(origin.key):
                return True
            asked += provenance.asked_by(origin.key)
        return self._asks_for_secrets(asked)

    def _asks_for_secrets(self, asked: Iterable[Question]) -> bool:
        return any(question[0] in ("get", "object") and question[1] in self._secrets for question in asked)

    def find_secret_texts(self, run: RenderRun) -> frozenset[str]:
        """Return the path of each output whose templates have looked up Secrets outside of fragments."""
        provenance = self.provenance(run)
        paths = [MAIN_TEMPLATE, *(output.path for output in self._outputs)]
        return frozenset(
            path for path in paths if self._asks_for_secrets(provenance.asked_in(provenance.output_of(path) or path))
        )

    def bring_up_to_date(
        self, session: Session, recall: Recall, permit: RenderPermit, most_dependents: float = inf
    ) -> PendingSources:
        """Render the marked fragments of *session*; return the sources that have to fetch something first.

        An object is not released from quarantine if more than *most_dependents* turns depend on that.
        Raises `RejectedError` if a template fails outside of fragments, if the decisions about objects do not end, and,
        at the next loop or call of a template, when *leave* is withdrawn.
        """
        run = session.run
        run.restart(recall)
        session.fallbacks.put_on_top()
        run.until = permit.until
        if not permit.is_valid:
            run.cancel()
        may_use_freed, limit = True, SettlingLimit()
        while True:
            problems = self._render_all(session)
            if pending := session.pending_sources():
                return pending
            if problems:
                raise RejectedError("render", tuple(problems))
            if not self._decide(session, most_dependents):
                if not (may_use_freed and run.touch_freed()):
                    break
                # Once: a fragment that finds no room then waits for the next render.
                may_use_freed = False
            if problem := limit.begin_round(run):
                raise RejectedError("render", (problem,))
        self._take_registered(session)
        settle(run)
        run.shares.finish()
        return ()

    def _decide(self, session: Session, most_dependents: float) -> bool:
        """Decide again, after everything has been rendered; True if fragments have to be rendered again."""
        run = session.run
        if run.registrations.settle() or settle_rounds(run) or settle_files(run):
            return True
        if not run.quarantined.settle(run, partial(session.find_heavy_releases, most_dependents)):
            return False
        session.fallbacks.take()
        return True

    def _render_all(self, session: Session) -> list[Problem]:
        """Render the pending parts of every output; return the problems outside of fragments."""
        run = session.run
        problems: list[Problem] = []
        for output in self._outputs:
            try:
                text = self._engine.render(output.name, session.context, run)
            except ProblemsError as exc:
                problems += exc.problems
            else:
                if output.path not in run.claims:
                    session.put(output.kind, output.path, text, secret=output.secret)
        try:
            session.texts.put(MAIN_TEMPLATE, self._engine.render(MAIN_TEMPLATE, session.context, run))
        except ProblemsError as exc:
            problems += exc.problems
        return problems

    def _take_registered(self, session: Session) -> None:
        run = session.run
        outputs = {output.path: output for output in self._outputs} if run.changed_files else {}
        for path in run.changed_files:
            file, output = run.claims.first(path), outputs.get(path)
            if file is not None:
                if file.kind is RegisteredKind.CLAIM:
                    continue
                kind = FileKind(file.kind.value)
                namespace = run.claims.namespace_of(path)
                session.put(kind, path, file.content, secret=kind is FileKind.CERT, namespace=namespace)
            elif output is not None:
                session.put(output.kind, path, run.roots[output.name].text, secret=output.secret)
            else:
                session.remove(path)
        run.changed_files.clear()
