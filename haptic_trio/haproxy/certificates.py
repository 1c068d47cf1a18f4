"""Certificate and crt-list files: what a configuration does with them, and whom a certificate is for."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec
from cryptography import x509

from haptic_trio.haproxy.lexer import split_line
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation

_ENTRY: Final = re.compile(
    r"(?P<certificate>[^\s\[\]]+)(?:\s*\[(?P<options>[^\[\]]*)\])?(?P<filters>(?:\s+[^\s\[\]]+)*)"
)
_ODD: Final = re.compile(r"[\"'\\$\0\r\v\f]")
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
# HAProxy puts these in front of the names of files.
_BASES: Final = frozenset({"crt-base", "ca-base", "key-base"})


class CrtListEntry(msgspec.Struct, frozen=True):
    """A line of a crt-list."""

    certificate: str
    options: str
    filters: tuple[str, ...]
    line: str
    """The words, with single blanks."""


class FileUses(msgspec.Struct, frozen=True):
    """How the lines of a configuration name a file."""

    options: frozenset[str] = frozenset()
    """Words in front of it on `bind` and `server` lines, such as `crt`."""
    other: bool = False
    """It is named elsewhere or otherwise as well."""
    strict: bool = True
    """Every `bind` line that names it has `strict-sni`."""


def parse_crt_list(content: bytes) -> tuple[CrtListEntry, ...] | None:
    """Return the entries of a crt-list, in order; None for one that is written in an unusual way."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    entries = []
    for line in text.split("\n"):
        words = line.strip(" \t")
        if not words or words[0] == "#":
            continue
        match = _ENTRY.fullmatch(words)
        if match is None or _ODD.search(words):
            return None
        entry = CrtListEntry(
            match["certificate"],
            " ".join((match["options"] or "").split()),
            tuple(match["filters"].split()),
            " ".join(words.split()),
        )
        entries.append(entry)
    return tuple(entries)


def find_file_uses(generation: Generation, path: str) -> FileUses:
    """Return how the configuration of *generation* names the file *path*."""
    options: set[str] = set()
    other, strict = False, True
    for words, raw in _lines_naming(generation.text, path):
        for index, word in enumerate(words):
            if path not in word:
                continue
            if word != path or raw or words[0] not in {"bind", "server", "default-server"}:
                other = True
            else:
                options.add(words[index - 1])
                strict = strict and "strict-sni" in words
    return FileUses(frozenset(options), other, strict)


def _lines_naming(text: str, path: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    at = text.find(path)
    while at >= 0:
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = end if end >= 0 else len(text)
        split = split_line(text[start:end])
        if split.words:
            yield split.words, bool(split.raw)
        at = text.find(path, end)


def names_are_files(generation: Generation) -> bool:
    """Whether the process knows files by the names that the configuration writes."""
    return not any(line.keyword in _BASES for section in generation.config.all("global") for line in section.directives)


def crt_lists_of(generation: Generation) -> dict[str, tuple[CrtListEntry, ...]] | None:
    """Return the entries of all crt-lists by path; None if one is unusual."""
    found = {}
    for file in generation.files.values():
        if file.kind is FileKind.CRT_LIST:
            entries = parse_crt_list(file.content)
            if entries is None:
                return None
            found[file.path] = entries
    return found


def names_of(entry: CrtListEntry, certificate: AuxFile | None) -> frozenset[str] | None:
    """Return the server names that *entry* answers for; None where that cannot be told."""
    filters = {name.lower() for name in entry.filters if name[0] != "!"}
    if filters:
        return frozenset(filters)
    # The certificate alone: what is remembered shall hold no private key.
    match = _PEM.search(certificate.content) if certificate is not None else None
    return _names_in(match[0]) if match is not None else None


@lru_cache(maxsize=20_000)
def _names_in(pem: bytes) -> frozenset[str] | None:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = {str(one.value) for one in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)}
        try:
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            names.update(extension.value.get_values_for_type(x509.DNSName))
        except x509.ExtensionNotFound:
            pass
    except ValueError:
        return None
    return frozenset(name.lower() for name in names)
