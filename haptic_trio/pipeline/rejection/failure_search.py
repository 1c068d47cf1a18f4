"""Search for the objects on which `haproxy -c` crashes, or that make it slow; quarantines what it finds."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from typing import Protocol, TypeAlias

import trio

from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Generation
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.rejection.crash_search import Fragments, find_fragments
from haptic_trio.pipeline.rejection.errors import CrashedError, RejectedError, UndecidedError
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.rejection.slow_search import find_slow_fragments, find_slow_namespaces
from haptic_trio.pipeline.render import Rendered
from haptic_trio.pipeline.validate import (
    Validator,
    locate_fragment,
    name_object,
    slow_namespace_problem,
    slow_problem,
)
from haptic_trio.templating.incremental.settling.overall_rounds import created_of
from haptic_trio.templating.values.subjects import FragmentKey

Keys: TypeAlias = Collection[FragmentKey]


class Variants(Protocol):
    """Interface of a search to its pipeline."""

    @property
    def newest(self) -> Rendered | None:
        """The newest render."""
        ...

    async def make_variant(self, omitted: Keys, kept: Keys, rendered: Rendered) -> tuple[Generation, Rendered]:
        """Return *rendered* with the last good output of the fragments *omitted*; raises `RejectedError`.

        Fragments in *kept* that have changed since keep their output of then.
        Other later changes are omitted, except deletions.
        """
        ...


class FailureSearch:
    """Searches of one pipeline, which it does not refer to. Its methods run one at a time."""

    def __init__(self, quarantine: Quarantine, validator: Validator) -> None:
        self._quarantine = quarantine
        self._validator = validator
        self._searched = ""
        """Id of the last generation that was too slow, and in which the search found no slow object."""

    async def quarantine_crashing(
        self, variants: Variants, rendered: Rendered, problem: Problem, progress: Callable[[], None]
    ) -> bool:
        """Quarantine the fragments of *rendered* on which HAProxy crashes, for *problem*; False if none is found.

        None is found if HAProxy also crashes on the last valid configuration.
        *progress* is called before each step.
        """
        suspects = self._quarantine.find_suspects(rendered.serial, rendered.produced)
        kept = {key for keys in suspects.values() for key in keys}

        async def crashes(omitted: Keys) -> bool:
            progress()
            return await self._crashes_without(variants, omitted, kept, rendered)

        found = await find_fragments(suspects, crashes)
        if found.found or found.beside:
            return self._reject(found, problem, rendered)
        gone = self._find_gone(variants, suspects, problem)
        # A deleted object cannot be tried; it is at fault if HAProxy accepts the rest.
        if not gone or await crashes(()):
            return False
        self._quarantine.setbacks.record(gone, trio.current_time())
        return True

    async def quarantine_slow(
        self,
        variants: Variants,
        generation: Generation,
        rendered: Rendered,
        spent: float,
        progress: Callable[[], None],
    ) -> bool:
        """Quarantine the fragments of *rendered* that make the check of *generation* slow; False if none is found.

        A fragment is at fault if it is slow by itself. If there is none, the
        youngest changed objects of a namespace whose changed objects are slow
        together are at fault.

        *spent* is the CPU time in seconds of the check until it was ended. Only
        CPU time counts, compared with a check without any suspect, so a busy
        machine quarantines nothing. *progress* is called before each step.
        """
        if generation.id == self._searched:
            return False
        suspects = self._quarantine.find_suspects(rendered.serial, rendered.produced)
        kept = {key for keys in suspects.values() for key in keys}
        costly = self._validator.costly

        async def measure(keys: Keys, most: float = inf) -> float:
            progress()
            variant = await variants.make_variant(kept.difference(keys), kept, rendered)
            return await self._validator.measure(*variant, most=most)

        found, of_namespaces = Fragments((), ()), tuple[FragmentKey, ...]()
        if suspects:
            try:
                others = await measure(())

                async def is_slow(keys: Keys, allowed: float = costly) -> bool:
                    try:
                        return await measure(keys, others + allowed) > others + allowed
                    except UndecidedError:
                        raise
                    except RejectedError:
                        # Something else is wrong with this part of the configuration by itself.
                        return False

                found = await find_slow_fragments(suspects, is_slow)
                gone = self._find_gone(variants, suspects, slow_problem(costly))
                # A deleted object cannot be tried; it is at fault if HAProxy accepts the rest.
                if gone and not (found.found or found.beside) and spent - costly > await measure(kept):
                    self._quarantine.setbacks.record(gone, trio.current_time())
                    return True
                if not (found.found or found.beside):
                    by_age = dict(sorted(suspects.items(), key=lambda item: _age_of(item[0], item[1], rendered)))
                    allowed = self._validator.costly_namespace
                    of_namespaces = await find_slow_namespaces(by_age, partial(is_slow, allowed=allowed))
            except RejectedError:
                # Without a measurement there is no verdict.
                return False
        if found.found or found.beside:
            return self._reject(found, slow_problem(costly), rendered)
        if of_namespaces:
            return self._reject_youngest(of_namespaces, rendered)
        self._searched = generation.id
        return False

    def _reject_youngest(self, keys: Keys, rendered: Rendered) -> bool:
        """Quarantine the objects of the fragments *keys*, each with the problem of its namespace."""
        costly = self._validator.costly_namespace
        problems = {key: name_object(slow_namespace_problem(key.namespace, costly), key) for key in keys}
        refs = {ResourceRef(key.kind, key.namespace, key.name): problem for key, problem in problems.items()}
        self._quarantine.setbacks.record(refs, trio.current_time())
        return self._quarantine.reject(problems, rendered.produced, whole=keys)

    def _reject(self, fragments: Fragments, problem: Problem, rendered: Rendered) -> bool:
        """Quarantine *fragments* for their output in *rendered*, and count the finding."""
        found, beside = fragments
        problems = {key: locate_fragment(problem, key, rendered) for key in found}
        problems |= {key: name_object(problem, key) for key in beside}
        refs = {ResourceRef(key.kind, key.namespace, key.name): problem for key in problems}
        self._quarantine.setbacks.record(refs, trio.current_time())
        return self._quarantine.reject(problems, rendered.produced, whole=beside)

    def _find_gone(
        self, variants: Variants, suspects: Mapping[ResourceRef, Keys], problem: Problem
    ) -> dict[ResourceRef, Problem]:
        """Return those of *suspects* that have no output in the newest render, each with *problem*."""
        newest = variants.newest
        assert newest is not None
        rejected = {rejection.key for rejection in newest.rejections}
        return {
            ref: problem
            for ref, keys in suspects.items()
            if rejected.isdisjoint(keys) and not any(key in newest.produced for key in keys)
        }

    async def _crashes_without(self, variants: Variants, omitted: Keys, kept: Keys, rendered: Rendered) -> bool:
        """Whether HAProxy crashes on *rendered* with the last good output of *omitted*."""
        try:
            generation, variant = await variants.make_variant(omitted, kept, rendered)
            await self._validator.check(generation, variant)
        except CrashedError:
            return True
        except UndecidedError:
            raise
        except RejectedError:
            # Something else is wrong with this part of the configuration by itself.
            return False
        return False


def _age_of(ref: ResourceRef, keys: Keys, rendered: Rendered) -> tuple[str, ResourceRef]:
    """Return a key by which the object *ref* with the fragments *keys* is sorted: the oldest first."""
    outputs = (rendered.produced.get(key) for key in keys)
    resource = next((output.resource for output in outputs if output is not None), None)
    return created_of(resource), ref
