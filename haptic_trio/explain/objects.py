"""Explanation of an object: its output, and its dependents."""

from collections.abc import Iterable, Iterator

from haptic_trio.explain.answers import MOST_SHOWN, Line, MadeBy, Named, ObjectAnswer, Product, Use
from haptic_trio.explain.lines import shown_title
from haptic_trio.explain.site import MAIN, Site, identity, maker, named, named_resource
from haptic_trio.explain.why_not import why_foreign
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.templating.incremental.provenance import Asker, Made, readable_question
from haptic_trio.templating.incremental.questions import Question
from haptic_trio.templating.values.subjects import Subject, subject_of

_MOST_LINES = 200
_MOST_MEASUREMENTS = 3


def find_objects(site: Site, kind: str, namespace: str | None, name: str) -> list[Resource]:
    """Return the matching watched objects; *kind* may be a plural, in any case, or empty for any kind."""
    return [
        resource
        for resource in site.objects(name, namespace)
        if not kind or is_kind(kind, str(resource.get("kind") or ""))
    ]


def is_kind(given: str, kind: str) -> bool:
    """Whether *given* is *kind* or its plural, in any case."""
    known = kind.lower()
    return given.lower() in {known, *_plurals(known)}


def is_looked_for(site: Site, kind: str, namespace: str, name: str) -> bool:
    """Whether a fragment looks up an object of *kind*, existing or not."""
    return any(True for _ in site.provenance.askers_of(_questions_for_absent(site, kind, namespace, name)))


def explain_object(site: Site, resource: Resource) -> ObjectAnswer:
    """Return the explanation of *resource*, which is in a store."""
    subject = subject_of(resource)
    made = site.provenance.made_by(*identity(subject))
    own = {item.origin.key for item in made}
    products = [_product(site, item) for item in made if item.lines or item.files]
    idle = [_maker_of(item) for item in made if not item.lines and not item.files]
    stores, questions = _questions_for(site, resource)
    askers = (one for one in site.provenance.askers_of(questions) if one.origin is None or one.origin.key not in own)
    return ObjectAnswer(
        object=named_resource(resource),
        exists=True,
        watched_as=tuple(stores),
        products=tuple(products),
        idle=tuple(idle),
        used_by=tuple(_group(askers)),
        problems=site.problems_of(subject),
        warnings=site.warnings_on(subject),
        notes=(f"not served: {foreign}",) if (foreign := why_foreign(site, resource)) else (),
    )


def explain_absent(site: Site, kind: str, namespace: str, name: str) -> ObjectAnswer:
    """Return the explanation of an object that is looked up but does not exist."""
    questions = _questions_for_absent(site, kind, namespace, name)
    return ObjectAnswer(
        object=Named(kind=kind, namespace=namespace, name=name, resource_version=""),
        exists=False,
        watched_as=tuple(_stores_of(site, kind)),
        products=(),
        idle=(),
        used_by=tuple(_group(site.provenance.askers_of(questions))),
        problems=(),
    )


def _plurals(kind: str) -> set[str]:
    return {f"{kind}s", f"{kind}es", f"{kind[:-1]}ies"}


def _stores_of(site: Site, kind: str) -> list[str]:
    wanted = kind.lower()
    return [name for name, plural in site.plurals.items() if plural in {wanted, *_plurals(wanted)}]


def _questions_for_absent(site: Site, kind: str, namespace: str, name: str) -> list[Question]:
    keys = (namespace, name) if namespace else (name,)
    return [(method, store, *keys) for method in ("get", "has") for store in _stores_of(site, kind)]


def _questions_for(site: Site, resource: Resource) -> tuple[list[str], list[Question]]:
    """Return the stores that hold *resource*, and all their lookups that find it."""
    ref = ref_of(resource)
    stores, questions = [], list[Question]()
    for name, store in site.stores.items():
        held = store.by_ref(ref)
        if held is not None:
            stores.append(name)
            questions.append(("get", name))
            prefixes = store.schema.prefixes(held)
            questions += [(method, name, *keys) for method in ("get", "has") for keys in prefixes]
    return stores, questions


def _maker_of(made: Made) -> MadeBy:
    return maker(next(iter(made.lines), made.origin.within.split(" each ")[0]), made.origin)


def _product(site: Site, made: Made) -> Product:
    lines = list(_lines(site, made))
    return Product(
        made_by=_maker_of(made),
        lines=tuple(lines[:_MOST_LINES]),
        lines_count=len(lines),
        sections=tuple(_sections(site, made)),
        files=made.files,
        depends_on=site.lookups(made.asked),
    )


def _lines(site: Site, made: Made) -> Iterator[Line]:
    for path, ranges in made.lines.items():
        texts = site.lines_of(path)
        for item in ranges:
            for number in range(item.first, item.last + 1):
                yield site.line(path, number, texts[number - 1], made.origin)


def _sections(site: Site, made: Made) -> Iterator[str]:
    if site.config is None:
        return
    for item in made.lines.get(MAIN, ()):
        for number in range(item.first, item.last + 1):
            found = site.config.locate(number)
            if found is not None and found[1] == 1:
                yield shown_title(site, found[0], number)


def _group(askers: Iterable[Asker]) -> list[Use]:
    """Return *askers* grouped by fragment or template."""
    groups: dict[tuple[str, str, str, int], tuple[dict[str, None], dict[Subject, None]]] = {}
    for asker in askers:
        origin = asker.origin
        key = (asker.output, "", "", 0)
        if origin is not None:
            key = (asker.output, origin.fragment, origin.template, origin.line)
        questions, subjects = groups.setdefault(key, ({}, {}))
        questions.setdefault(readable_question(asker.question))
        if origin is not None:
            subjects.setdefault(origin.subject)
    return [
        Use(
            output=output,
            fragment=fragment,
            template=template,
            line=line,
            questions=tuple(questions)[:_MOST_MEASUREMENTS],
            objects=tuple(named(subject) for subject in sorted(subjects)[:MOST_SHOWN]),
            count=len(subjects),
        )
        for (output, fragment, template, line), (questions, subjects) in groups.items()
    ]
