"""What a fragment gave: kept to stand in for it when its object breaks."""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.templating.paths import RenderedFile
from haptic_trio.templating.subjects import FragmentKey, size_of


class FragmentOutput(msgspec.Struct, frozen=True):
    """Text and files that a fragment gave for one object."""

    text: str
    files: tuple[RenderedFile, ...]
    version: str
    """resourceVersion of the object."""

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


class Recall(msgspec.Struct, frozen=True):
    """What a run knows of those before it."""

    good: Mapping[FragmentKey, FragmentOutput] = MappingProxyType({})
    """The newest output of each fragment that was part of a valid configuration."""
    blocked: Mapping[FragmentKey, Mapping[str, Problem]] = MappingProxyType({})
    """Outputs, by digest or edition, that HAProxy refuses, and why: as good as failed."""
    held: Mapping[FragmentKey, Problem] = MappingProxyType({})
    """Fragments that count as failed whatever they give, and why."""
