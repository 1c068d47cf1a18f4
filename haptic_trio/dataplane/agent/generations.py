"""Generations as deltas to known ones: what the agent can assemble, and what the controller has to send.

A small change is one delta (`haptic_trio.haproxy.plan.delta`). A large change,
or one for an agent in an unknown state, is a manifest: the digests of pieces.
Both sides cut contents in the same way (`pieces`), so an agent that was
restarted and has only files still has the pieces that a controller refers to.
If it has not, the digest of the recipe does not match.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from haptic_trio.dataplane.agent.messages import FileRecipe, Manifest, Recipe
from haptic_trio.dataplane.agent.pieces import (
    OutsideBaseError,
    Pieces,
    cut_config,
    cut_file,
    digest_recipe,
    follow_steps,
    join_pieces,
    make_steps,
)
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.config.parser import SectionCache, parse_config
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, make_file, make_files, make_generation
from haptic_trio.haproxy.plan.delta import Delta, DeltaError, apply_delta

KEPT: Final = 4
"""Generations that are kept: the running one, the previous one, and those being prepared."""

Find = Callable[[str], bytes | None]


class UnknownBaseError(HapticError):
    """The base of a manifest or delta is not known; the complete manifest helps."""


class MissingBlobsError(HapticError):
    """Blobs are missing; a retry helps once they were uploaded."""

    def __init__(self, missing: tuple[str, ...]) -> None:
        self.missing = missing
        super().__init__(f"{len(missing)} blobs are missing")


class WrongContentError(HapticError):
    """An assembled content does not match its digest; permanent."""


class CutGeneration(msgspec.Struct, frozen=True):
    """A generation and the pieces of its contents."""

    generation: Generation
    config: Pieces
    files: Mapping[str, Pieces]


def cut_generation(generation: Generation, base: CutGeneration | None = None) -> CutGeneration:
    """Cut *generation*, reusing the pieces of unchanged files in *base*. CPU work: run in a thread."""
    files = {}
    for path, file in generation.files.items():
        known = base.generation.files.get(path) if base is not None else None
        same = base is not None and known is not None and (known is file or known.seal == file.seal)
        files[path] = base.files[path] if base is not None and same else cut_file(file.content)
    return CutGeneration(generation, cut_config(generation.config), files)


def make_manifest(desired: CutGeneration, base: CutGeneration | None = None) -> Manifest:
    """Return the manifest of *desired*, relative to *base* if given."""
    generation = desired.generation
    former: Mapping[str, AuxFile] = base.generation.files if base is not None else {}
    return Manifest(
        id=generation.id,
        base=base.generation.id if base is not None else None,
        config=_recipe(desired.config, base.config if base is not None else None),
        files=tuple(
            FileRecipe(
                path=path,
                kind=file.kind,
                content=_recipe(desired.files[path], base.files.get(path) if base is not None else None),
                secret=file.secret,
            )
            for path, file in generation.files.items()
            if former.get(path) != file
        ),
        removed=tuple(path for path in former if path not in generation.files),
    )


def _recipe(pieces: Pieces, base: Pieces | None) -> Recipe:
    steps = make_steps(pieces.recipe, base.recipe if base is not None else ())
    return Recipe(digest_recipe(pieces.recipe), steps)


def new_pieces(desired: CutGeneration, base: CutGeneration | None) -> dict[str, bytes]:
    """Return the pieces of *desired* that *base* does not contain."""
    known = pieces_of(base) if base is not None else {}
    return {digest: piece for digest, piece in pieces_of(desired).items() if digest not in known}


def pieces_of(cut: CutGeneration) -> dict[str, bytes]:
    """Return all pieces of *cut*, by digest."""
    pieces = dict(cut.config.contents)
    for part in cut.files.values():
        pieces.update(part.contents)
    return pieces


class KnownGenerations:
    """The last KEPT generations, which can be the base of others.

    Every method may take CPU time; not for use by several threads at once.
    """

    def __init__(self, *, piece_limit: int, byte_limit: int, text_limit: int | None = None) -> None:
        """Limit generations that are assembled; *text_limit*: bytes of haproxy.cfg, by default *byte_limit*."""
        self._piece_limit = piece_limit
        self._byte_limit = byte_limit
        self._text_limit = byte_limit if text_limit is None else text_limit
        self._known: OrderedDict[str, Generation] = OrderedDict()
        self._cuts: dict[str, CutGeneration] = {}
        self._parsed = SectionCache()

    def find(self, generation: str) -> Generation | None:
        """Return a known generation."""
        return self._known.get(generation)

    def learn(self, generation: Generation) -> None:
        """Add *generation* as the newest; the oldest is dropped."""
        self._known[generation.id] = generation
        self._known.move_to_end(generation.id)
        while len(self._known) > KEPT:
            forgotten, _ = self._known.popitem(last=False)
            self._cuts.pop(forgotten, None)

    def cut(self, generation: Generation) -> CutGeneration:
        """Add *generation* and return it with its pieces."""
        cut = self._cuts.get(generation.id)
        if cut is None:
            cut = cut_generation(generation, next(reversed(self._cuts.values()), None))
            self._cuts[generation.id] = cut
        self.learn(generation)
        return cut

    def pieces(self) -> dict[str, bytes]:
        """Return the pieces of all known generations, by digest."""
        pieces: dict[str, bytes] = {}
        for generation in list(self._known.values()):
            pieces.update(pieces_of(self.cut(generation)))
        return pieces

    def apply(self, delta: Delta) -> Generation:
        """Add and return the result of *delta*; raises UnknownBaseError if its base is unknown or does not match."""
        known = self._known.get(delta.id)
        if known is None:
            base = self._known.get(delta.base)
            if base is None:
                raise UnknownBaseError(f"generation {delta.base} is not known")
            try:
                known = apply_delta(base, delta)
            except DeltaError as exc:
                raise UnknownBaseError(str(exc)) from exc
        self.learn(known)
        return known

    def assemble(self, manifest: Manifest, find: Find, *, keep: bool = True) -> Generation:
        """Return the generation of *manifest*, and add it with *keep*; *find* returns uploaded blobs by digest.

        Raises UnknownBaseError, MissingBlobsError, WrongContentError,
        RecipeError, and ConfigSyntaxError if the configuration cannot be
        parsed.
        """
        generation = self._known.get(manifest.id)
        if generation is None:
            base = self._known.get(manifest.base) if manifest.base is not None else None
            if base is None and manifest.base is not None:
                raise UnknownBaseError(f"generation {manifest.base} is not known")
            generation = self._assemble(manifest, self.cut(base) if base is not None else None, find)
        if keep:
            self.learn(generation)
        return generation

    def _assemble(self, manifest: Manifest, base: CutGeneration | None, find: Find) -> Generation:
        collected = _Collected(base, find, self.pieces, self._byte_limit)

        def follow(recipe: Recipe, former: Pieces | None) -> tuple[str, ...]:
            pieces = follow_steps(recipe.steps, former.recipe if former is not None else (), limit=self._piece_limit)
            if digest_recipe(pieces) != recipe.digest:
                raise OutsideBaseError("the base has other pieces")
            collected.need(pieces)
            return pieces

        config = follow(manifest.config, base.config if base is not None else None)
        recipes = [
            follow(file.content, base.files.get(file.path) if base is not None else None) for file in manifest.files
        ]
        if collected.missing:
            raise MissingBlobsError(tuple(collected.missing))
        try:
            text = collected.join(config, self._text_limit).decode()
        except UnicodeDecodeError as exc:
            raise WrongContentError(f"haproxy.cfg is not UTF-8: {exc}") from exc
        files = [
            make_file(FileKind(file.kind), file.path, collected.join(recipe), secret=file.secret)
            for file, recipe in zip(manifest.files, recipes, strict=True)
        ]
        held = base.generation.files if base is not None else make_files(())
        generation = make_generation(parse_config(text, cache=self._parsed), held.changed(files, manifest.removed))
        if generation.id != manifest.id:
            raise WrongContentError(f"the manifest of {manifest.id} gives generation {generation.id}")
        return generation


class _Collected:
    """The pieces that a manifest needs, from the base, uploads and known generations."""

    def __init__(
        self, base: CutGeneration | None, find: Find, others: Callable[[], dict[str, bytes]], byte_limit: int
    ) -> None:
        self.missing: dict[str, None] = {}
        self._base: Mapping[str, bytes] = base.config.contents if base is not None else {}
        self._find = find
        self._others = others
        self._other: dict[str, bytes] | None = None
        self._pieces: dict[str, bytes] = {}
        self._left = byte_limit

    def need(self, digests: tuple[str, ...]) -> None:
        for digest in digests:
            if digest in self._pieces or digest in self.missing:
                continue
            piece = self._base.get(digest) or self._find(digest) or self._find_in_others(digest)
            if piece is None:
                self.missing[digest] = None
            else:
                self._pieces[digest] = piece

    def _find_in_others(self, digest: str) -> bytes | None:
        if self._other is None:
            self._other = self._others()
        return self._other.get(digest)

    def join(self, recipe: tuple[str, ...], limit: int | None = None) -> bytes:
        most = self._left if limit is None else min(limit, self._left)
        content = join_pieces(recipe, self._pieces.get, limit=most)
        self._left -= len(content)
        return content
