"""Runtime commands that carry a file's content: certificates, crt-list entries, authorities.

The content is the payload of the command. An empty line ends the payload, so
empty lines, which have no meaning in PEM, are removed.
"""

import re
from typing import Final

from haptic_trio.haproxy.plan.commands import (
    MAX_COMMAND_BYTES,
    UnsendableError,
    escape_word,
)
from haptic_trio.haproxy.plan.operations import AddCrtListEntry, DeleteCrtListEntry, StoreCertificate, StoreTrust

_SEVERAL: Final = re.compile(r"found the certificate '.*' in several entries, .*\((?P<lines>[\d, ]+)\)")


def store_commands(operation: StoreCertificate | StoreTrust) -> tuple[str, ...]:
    """Return the commands of the transaction for *operation*; raises UnsendableError."""
    kind = "cert" if isinstance(operation, StoreCertificate) else operation.kind
    path = file_word(operation.path)
    head = f"set ssl {kind} {path} <<\n"
    commands = (head + _payload(operation.content, len(head)), f"commit ssl {kind} {path}")
    if isinstance(operation, StoreCertificate) and operation.is_new:
        return f"new ssl cert {path}", *commands
    return commands


def abort_command(operation: StoreCertificate | StoreTrust) -> str:
    """Return the command that aborts the open transaction for *operation*."""
    kind = "cert" if isinstance(operation, StoreCertificate) else operation.kind
    return f"abort ssl {kind} {file_word(operation.path)}"


def list_command(operation: AddCrtListEntry) -> str:
    """Return the command for *operation*, with its payload; raises UnsendableError."""
    head = f"add ssl crt-list {file_word(operation.crt_list)} <<\n"
    return head + _payload(operation.line.encode(), len(head))


def unlist_command(operation: DeleteCrtListEntry, *, line: int | None = None) -> str:
    """Return the command for *operation*; *line* selects one of several entries. Raises UnsendableError."""
    where = "" if line is None else f":{line}"
    return f"del ssl crt-list {file_word(operation.crt_list)} {file_word(operation.certificate)}{where}"


def read_oldest_line(reply: str) -> int | None:
    """Return the line of the oldest entry if *reply* reports several entries of a certificate; else None."""
    match = _SEVERAL.search(reply)
    return min(map(int, match["lines"].split(","))) if match is not None else None


def is_sendable(operation: StoreCertificate | StoreTrust | AddCrtListEntry) -> bool:
    """Whether commands can carry *operation*."""
    try:
        list_command(operation) if isinstance(operation, AddCrtListEntry) else store_commands(operation)
    except UnsendableError:
        return False
    return True


def file_word(path: str) -> str:
    """Return the name of a file as one word of a command; raises UnsendableError if that is not possible."""
    if path[:1] in {"*", "@", "\\"} or ":" in path:
        raise UnsendableError(f"no command can name the file {path!r}: it begins with * @ \\ or contains a colon")
    return escape_word(path)


def _payload(content: bytes, taken: int) -> str:
    try:
        text = content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UnsendableError("no command can carry a file that is not text") from None
    lines = [line for line in text.split("\n") if line.strip()]
    payload = "".join(f"{line}\n" for line in lines) + "\n"
    if not lines or "\0" in text or "\r" in text or taken + len(payload.encode()) > MAX_COMMAND_BYTES:
        raise UnsendableError(f"no command can carry a file that is empty, or over {MAX_COMMAND_BYTES} bytes long")
    return payload
