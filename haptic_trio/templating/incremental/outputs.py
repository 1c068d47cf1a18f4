"""Outputs of fragments, kept as the fallback for an object that breaks later."""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.templating.values.paths import RenderedFile
from haptic_trio.templating.values.subjects import FragmentKey, size_of


class FragmentOutput(msgspec.Struct, frozen=True):
    """Text and files that a fragment gave for one object."""

    text: str
    files: tuple[RenderedFile, ...]
    version: str
    """resourceVersion of the object."""
    is_closing: bool = False
    """Put out since the object is rejected: never a good output."""
    resource: Any = None
    """The object as it was then."""
    guards: frozenset[str] = frozenset()
    """By what access to it is guarded, in words of the template."""
    rounds: int = 0
    """Of all password hashes that it has: HAProxy computes each whenever it reads a configuration."""
    is_secret: bool = False
    """It may hold what a Secret does: the fragment has looked one up."""

    def __repr__(self) -> str:
        # The text and the files may hold a private key.
        return f"FragmentOutput({self.digest()[:12]}, {len(self.files)} files)"

    @property
    def size(self) -> int:
        """UTF-8 bytes of text and files."""
        return size_of(self.text) + sum(size_of(file.text) for file in self.files)

    @property
    def edition(self) -> str:
        """What stands for every output for this version of the object where digests do for single outputs."""
        return f"version {self.version}"

    def digest(self) -> str:
        """Return the hash of text and files."""
        digest = hashlib.blake2b(self.text.encode(errors="surrogatepass"), digest_size=20)
        for file in self.files:
            digest.update(f"\0{file.path}\0{file.text}".encode(errors="surrogatepass"))
        return digest.hexdigest()


class Paused(msgspec.Struct, frozen=True):
    """Objects of which nothing new is used for some time, with the reason."""

    objects: Mapping[tuple[str, ...], Problem] = MappingProxyType({})
    """By kind, namespace and name."""
    namespaces: Mapping[str, Problem] = MappingProxyType({})

    def __bool__(self) -> bool:
        return bool(self.objects) or bool(self.namespaces)

    def problem_of(self, key: FragmentKey) -> Problem | None:
        """Return why the object of the fragment *key* is among them; None if it is not."""
        return self.objects.get((key.kind, key.namespace, key.name)) or self.namespaces.get(key.namespace)


class Recall(msgspec.Struct, frozen=True):
    """What a run knows of those before it."""

    good: Mapping[FragmentKey, FragmentOutput] = MappingProxyType({})
    """The newest output of each fragment that was part of a valid configuration."""
    blocked: Mapping[FragmentKey, Mapping[str, Problem]] = MappingProxyType({})
    """Outputs, by digest or edition, that HAProxy refuses, and why: as good as failed."""
    held: Mapping[FragmentKey, Problem] = MappingProxyType({})
    """Fragments that count as failed whatever they give, and why; others of their objects do not."""
    newer: Mapping[FragmentKey, FragmentOutput | None] = MappingProxyType({})
    """What is newer than `good`, has passed phase 1 and may be deployed already, and waits for phase 2; None: gone."""
    paused: Paused = Paused()
    """Objects whose fragments count as failed where they give something else than their good output."""

    def newest(self, key: FragmentKey) -> FragmentOutput | None:
        """Return the newest output of the fragment that is as good as known."""
        newer = self.newer.get(key) if self.paused.problem_of(key) is None else None
        return self.good.get(key) if newer is None or newer.is_closing else newer

    def problem_with(self, key: FragmentKey, output: FragmentOutput) -> Problem | None:
        """Return why *output*, which the fragment gives now, is as good as failed; None if it is not."""
        blocked = self.blocked.get(key)
        if blocked and (known := blocked.get(output.digest()) or blocked.get(output.edition)) is not None:
            return known
        paused = self.paused.problem_of(key)
        return paused if paused is not None and not self._is_harmless(key, output) else None

    def _is_harmless(self, key: FragmentKey, output: FragmentOutput) -> bool:
        good = self.good.get(key)
        is_empty = not output.text.strip() and not output.files
        return is_empty or (good is not None and good.digest() == output.digest())

    def is_blocked(self, key: FragmentKey, output: FragmentOutput) -> bool:
        """Whether HAProxy refuses *output*, which the fragment has given before."""
        blocked = self.blocked.get(key)
        return bool(blocked) and output.digest() in blocked  # type: ignore[operator]
