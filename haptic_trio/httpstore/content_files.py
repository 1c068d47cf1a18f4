"""Accepted contents on disk, which a controller uses after a restart while their servers cannot be reached."""

import hashlib
import os
import secrets
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from haptic_trio.httpstore.content import Content
from haptic_trio.httpstore.request import FetchRequest
from haptic_trio.state_files.reader import StateFileError, make_own_directory, open_state_file, read_state_file
from haptic_trio.state_files.writer import write_file

KEY_NAME: Final = "key"
_KEY_BYTES: Final = 32
_SUFFIX: Final = ".content"
_DRAFT_SUFFIX: Final = ".new"
_MOST_BYTES_OF_HEAD: Final = 8_192
"""More than a URL and two validators need."""


class StoredContentError(Exception):
    """A stored content cannot be used; names the file and the reason, without any content."""


class Stored(msgspec.Struct, frozen=True):
    """A content from disk."""

    content: Content
    age: float
    """Seconds since its server confirmed it; 0 if the clock was set back meanwhile."""


class Kept(msgspec.Struct, frozen=True):
    """An accepted content that shall be on disk."""

    request: FetchRequest
    content: Content
    age: float
    """Seconds since its server confirmed it."""


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts about a content, in its file."""

    url: str
    fetched: int
    """Unix time of the fetch."""
    etag: str = ""
    last_modified: str = ""


class ContentFiles:
    """A directory with a file for each content: a checksum of the rest, the head in JSON, the text.

    The modification time of a file is the time when the server confirmed the
    content last. Names of files depend on URL, headers and trusted
    certificates, by a key that only this directory has: a content that was
    fetched with other credentials is not found, and a name reveals nothing
    about the credentials. All methods block.
    """

    def __init__(self, directory: Path) -> None:
        """*directory* is created when it is needed; no other process may write to it."""
        self._directory = directory
        self._key = b""
        self._written: dict[str, tuple[str, float]] = {}
        """Digest and time of confirmation of each file that this process has written, by name."""

    def __str__(self) -> str:
        return str(self._directory)

    def read(self, request: FetchRequest, max_bytes: int) -> Stored | None:
        """Return the content that was stored for *request*; None if there is none.

        Raises `StoredContentError` if its file is damaged, is longer than
        *max_bytes* allow, or cannot be read.
        """
        try:
            path = self._directory / self._name_of(request, create=False)
            with os.fdopen(open_state_file(path), "rb") as file:
                data = file.read(max_bytes + _MOST_BYTES_OF_HEAD + 1)
                confirmed = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise StoredContentError(f"{exc.filename or self._directory}: {exc.strerror}") from None
        checksum, _, rest = data.partition(b"\n")
        line, _, body = rest.partition(b"\n")
        if len(body) > max_bytes:
            raise StoredContentError(f"{path}: it is longer than `http.maxBytes` ({max_bytes})")
        if checksum != _checksum_of(rest):
            raise StoredContentError(f"{path}: the file is damaged: its checksum does not match")
        try:
            head = msgspec.json.decode(line, type=_Head)
            text = body.decode()
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StoredContentError(f"{path}: the format of the file is not known") from None
        if head.url != request.url:
            raise StoredContentError(f"{path}: the file is about another URL")
        if not request.may_be_empty and not text.strip():
            raise StoredContentError(f"{path}: the content is empty")
        content = Content.of(text, etag=head.etag, last_modified=head.last_modified)
        return Stored(content, max(0.0, time.time() - max(confirmed, head.fetched)))

    def write(self, kept: Collection[Kept], used: Collection[FetchRequest] | None) -> None:
        """Write what has changed of *kept*; with *used*, remove the files of all other requests.

        Raises OSError; the next call tries again what is missing.
        """
        if not (self._directory / KEY_NAME).exists():
            # At the first start, or after the directory was removed.
            self._written.clear()
            self._key = b""
            if not kept:
                return
        # Requests with other intervals share a file: the newest content counts.
        for name, one in self._by_name(kept).items():
            confirmed = time.time() - one.age
            digest, before = self._written.get(name, ("", 0.0))
            if digest != one.content.digest or not self._touch(name, before, confirmed):
                self._replace(name, _encoded(one, confirmed), confirmed)
            self._written[name] = one.content.digest, confirmed
        if used is not None:
            self._remove_others({self._name_of(request, create=True) for request in used})

    def _by_name(self, kept: Collection[Kept]) -> dict[str, Kept]:
        oldest_first = sorted(kept, key=lambda one: one.age, reverse=True)
        return {self._name_of(one.request, create=True): one for one in oldest_first}

    def _touch(self, name: str, before: float, confirmed: float) -> bool:
        """Write the time *confirmed* if it differs from *before*; False if there is no file."""
        with suppress(FileNotFoundError):
            if confirmed - before >= 1:
                os.utime(self._directory / name, (confirmed, confirmed))
            return True
        return False

    def _remove_others(self, names: Collection[str]) -> None:
        for path in self._directory.iterdir():
            if path.name not in names and path.suffix in (_SUFFIX, _DRAFT_SUFFIX):
                path.unlink(missing_ok=True)
                self._written.pop(path.name, None)

    def _replace(self, name: str, data: bytes, confirmed: float) -> None:
        """Replace a file atomically. It is not synced: the checksum finds what a power failure has left out."""
        draft = self._directory / f"{name}{_DRAFT_SUFFIX}"
        try:
            draft.unlink(missing_ok=True)
            write_file(draft, data, durable=False)
            os.utime(draft, (confirmed, confirmed))
            draft.replace(self._directory / name)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise

    def _name_of(self, request: FetchRequest, *, create: bool) -> str:
        """Return the name of the file for *request*; *create* also the key if it is missing, else FileNotFoundError."""
        if not self._key:
            self._key = self._make_key() if create else self._read_key()
        identity = msgspec.json.encode([request.url, request.headers, request.ca])
        return hashlib.blake2b(identity, key=self._key, digest_size=16).hexdigest() + _SUFFIX

    def _read_key(self) -> bytes:
        key = read_state_file(self._directory / KEY_NAME)
        if len(key) != _KEY_BYTES:
            raise StoredContentError(
                f"{self._directory / KEY_NAME}: the file is damaged: it has not {_KEY_BYTES} bytes"
            )
        return key

    def _make_key(self) -> bytes:
        make_own_directory(self._directory)
        with suppress(FileNotFoundError, StateFileError, StoredContentError):
            return self._read_key()
        key = secrets.token_bytes(_KEY_BYTES)
        self._replace(KEY_NAME, key, time.time())
        return key


def _encoded(kept: Kept, confirmed: float) -> bytes:
    content = kept.content
    head = _Head(url=kept.request.url, fetched=int(confirmed), etag=content.etag, last_modified=content.last_modified)
    rest = b"\n".join((msgspec.json.encode(head), content.text.encode()))
    return b"\n".join((_checksum_of(rest), rest))


def _checksum_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).hexdigest().encode()
