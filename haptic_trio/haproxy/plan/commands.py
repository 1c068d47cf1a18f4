"""Runtime commands as text, and the meaning of HAProxy's replies.

Syntax of commands, verified with real binaries: blanks separate words; there
are no quotes; a backslash escapes the next character; `;` separates commands;
the lines after a command that ends in `<<`, up to an empty line, are its
literal payload. Text that is not UTF-8 is represented by surrogate escapes:
encode commands with `errors="surrogateescape"`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from haptic_trio.errors import HapticError
from haptic_trio.haproxy.plan.operations import (
    AddAclEntry,
    AddBackend,
    AddMapEntry,
    AddServer,
    DeleteAclEntry,
    DeleteCertificate,
    DeleteMapEntry,
    EnableChecks,
    PublishBackend,
    ReplaceAcl,
    ReplaceMap,
    SetMapEntry,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
    UnpublishBackend,
)
from haptic_trio.redaction.names import BLANK
from haptic_trio.redaction.quoted import without_quoted

MAX_BATCH: Final = 64
"""Maximum number of commands joined into one line; more would gain little."""

MAX_COMMAND_BYTES: Final = 12_000
"""Maximum size of a command with its payload: HAProxy's buffer is 16 KiB, part of which is reserved."""

SimpleOperation: TypeAlias = (
    SetServerAddress
    | SetServerWeight
    | SetServerState
    | AddServer
    | EnableChecks
    | AddBackend
    | PublishBackend
    | UnpublishBackend
    | DeleteCertificate
    | AddMapEntry
    | SetMapEntry
    | DeleteMapEntry
    | AddAclEntry
    | DeleteAclEntry
)
"""Operations that are one command without payload; others need several commands, or repetition."""

_SPECIAL: Final = re.compile("[ \t\v\f;\\\\<>\"'#$|]")
_ENTRY_COMMAND: Final = re.compile(r"(?:add|set|del) (?:map|acl) (?:@\d+ )?(?:\\.|[^ \\])+(?= )")
_FORBIDDEN: Final = re.compile("[\0\r\n]")
# A reply may begin with a success and end with the reason why the port stays. Since 3.0 it names changes only.
_ADDRESS_REPLY: Final = re.compile(
    r"\A(?:(?:IP changed from '[^']*' to '[^']*'|no need to change the addr)"
    r"(?:, (?:port changed from '[^']*' to '[^']*'|no need to change the port))?"
    r"|port changed from '[^']*' to '[^']*') by '.*'\Z"
    r"|\Anothing changed\Z"
)
_VERSION_REPLY: Final = re.compile(r"\ANew version created: (?P<version>\d+)\Z")
# Warnings may precede these replies.
_REPLIES: Final = {
    "prepare map": _VERSION_REPLY,
    "prepare acl": _VERSION_REPLY,
    "add server": re.compile(r"^New server registered\.\Z", re.MULTILINE),
    "del server": re.compile(r"^Server deleted\.\Z", re.MULTILINE),
    "add backend": re.compile(r"^New backend registered.*\Z", re.MULTILINE),
    "publish backend": re.compile(r"^Backend published\.\Z", re.MULTILINE),
    "unpublish backend": re.compile(r"^Backend unpublished\.\Z", re.MULTILINE),
    "del backend": re.compile(r"^Backend deleted\.\Z", re.MULTILINE),
    "new ssl cert": re.compile(r"\ANew empty certificate store '.*'!\Z"),
    "set ssl cert": re.compile(r"^(?:Transaction created|Transaction updated) for certificate .*!\Z", re.MULTILINE),
    "set ssl ca-file": re.compile(r"^transaction (?:created|updated) for CA .*!\Z", re.MULTILINE),
    "set ssl crl-file": re.compile(r"^transaction (?:created|updated) for CRL .*!\Z", re.MULTILINE),
    "commit ssl": re.compile(r"^Success!\Z", re.MULTILINE),
    "add ssl crt-list": re.compile(r"^Success!\Z", re.MULTILINE),
    "del ssl crt-list": re.compile(r"\AEntry '.*' deleted in crtlist '.*'!\Z"),
    "del ssl cert": re.compile(r"\ACertificate '.*' deleted!\Z"),
}


class UnsendableError(HapticError):
    """No runtime command can carry a value. A permanent error; a reload applies the value."""


class RuntimeCommandError(HapticError):
    """HAProxy rejected a runtime command. A permanent error for this command."""

    def __init__(self, command: str, reply: str) -> None:
        self.command = command
        self.reply = reply
        shown, said = command.partition("\n")[0], reply.strip() or "no reply"
        if (found := _ENTRY_COMMAND.match(shown)) is not None:
            # Keys and values may be credentials, and a reply may repeat them.
            shown, said = f"{found[0]} {BLANK}", without_quoted(said, lambda _text: False)
        super().__init__(f"'{shown}': {said}")


def is_sendable(word: str) -> bool:
    """Whether a command can carry *word*: it is not empty, and has no line break and no NUL."""
    return bool(word) and _FORBIDDEN.search(word) is None


def escape_word(word: str) -> str:
    """Return *word* as one word of a command; raises UnsendableError if that is not possible."""
    if not is_sendable(word):
        raise UnsendableError("no command can carry an empty word, or a word with a line break or NUL")
    return _SPECIAL.sub(r"\\\g<0>", word)


def format_command(operation: SimpleOperation) -> str:
    """Return the command for *operation*, without line feed; raises UnsendableError."""
    match operation:
        case AddBackend(backend, defaults, mode):
            words = ["add", "backend", backend, "from", defaults, "mode", mode]
        case PublishBackend(backend):
            words = ["publish", "backend", backend]
        case UnpublishBackend(backend):
            words = ["unpublish", "backend", backend]
        case DeleteCertificate(path):
            words = ["del", "ssl", "cert", path]
        case AddMapEntry(name, key, value):
            words = ["add", "map", _file(name), key, value]
        case SetMapEntry(name, key, value):
            words = ["set", "map", _file(name), _key(key), value]
        case DeleteMapEntry(name, key):
            words = ["del", "map", _file(name), _key(key)]
        case AddAclEntry(name, key):
            words = ["add", "acl", _file(name), key]
        case DeleteAclEntry(name, key):
            words = ["del", "acl", _file(name), _key(key)]
        case _:
            words = _server_words(operation)
    return _checked(" ".join(map(escape_word, words)))


def _server_words(
    operation: SetServerAddress | SetServerWeight | SetServerState | AddServer | EnableChecks,
) -> list[str]:
    name = f"{operation.backend}/{operation.server}"
    match operation:
        case SetServerAddress(address=address, port=port):
            # HAProxy would wrap a port that is too large.
            if not 0 < port < 65536:
                raise UnsendableError(f"port {port} is outside of 1 to 65535")
            return ["set", "server", name, "addr", address, "port", str(port)]
        case SetServerWeight(weight=weight):
            return ["set", "server", name, "weight", str(weight)]
        case SetServerState(state=state):
            return ["set", "server", name, "state", state]
        case AddServer(address=address, options=options):
            return ["add", "server", name, address, *options]
        case EnableChecks(agent=agent):
            return ["enable", "agent" if agent else "health", name]


Replacement: TypeAlias = ReplaceMap | ReplaceAcl
"""Operations in a transaction that fills a new version beside the version in use."""


def prepare_version(replacement: Replacement) -> str:
    """Return the command that opens a new version of a map or list; parse its reply by `read_prepared_version`."""
    kind, name = _target(replacement)
    return f"prepare {kind} {name}"


def read_prepared_version(command: str, reply: str) -> int:
    """Return the version that `prepare` opened; raises RuntimeCommandError."""
    match = _VERSION_REPLY.search(reply.strip())
    if match is None:
        raise RuntimeCommandError(command, reply)
    return int(match["version"])


def fill_version(replacement: Replacement, version: int) -> Iterator[str]:
    """Yield the commands that add the entries to a prepared version.

    Commands for a map have a payload, so no command can follow them in a
    batch; commands for an ACL list have none. Raises UnsendableError for an
    entry that no command can carry.
    """
    kind, name = _target(replacement)
    head = f"add {kind} @{version} {name}"
    match replacement:
        case ReplaceMap(entries=entries):
            yield from _fill_map(f"{head} <<\n", entries)
        case ReplaceAcl(keys=keys):
            for key in keys:
                yield _checked(f"{head} {escape_word(key)}")


def _fill_map(head: str, entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    lines: list[str] = []
    size = len(head)
    for key, value in entries:
        line = _payload_line(key, value)
        width = len(line.encode(errors="surrogateescape"))
        if lines and size + width > MAX_COMMAND_BYTES:
            yield head + "".join(lines) + "\n"
            lines, size = [], len(head)
        lines.append(line)
        size += width
    if lines:
        yield head + "".join(lines) + "\n"


def commit_version(replacement: Replacement, version: int) -> str:
    """Return the command that atomically replaces the version in use by a prepared one."""
    kind, name = _target(replacement)
    return f"commit {kind} @{version} {name}"


def abandon_version(replacement: Replacement, version: int) -> str:
    """Return the command that discards a prepared version."""
    kind, name = _target(replacement)
    return f"clear {kind} @{version} {name}"


def show_entries(replacement: Replacement) -> str:
    """Return the command that shows the entries in use; parse its reply by `parse_map` or `parse_list`."""
    kind, name = _target(replacement)
    return f"show {kind} {name}"


def _target(replacement: Replacement) -> tuple[str, str]:
    match replacement:
        case ReplaceMap(map=name):
            return "map", escape_word(_file(name))
        case ReplaceAcl(acl=name):
            return "acl", escape_word(_file(name))


def join_commands(commands: Sequence[str]) -> str:
    """Return *commands* as one line for one connection, with its line feed.

    Raises `UnsendableError` if one before the last has a payload.
    """
    if any("\n" in command for command in commands[:-1]):
        raise UnsendableError("no command can follow a command with a payload on one line")
    return ";".join(commands) + "\n"


def split_replies(text: str, count: int) -> tuple[str, ...]:
    """Return the replies to *count* joined commands, in order, without the empty line that ends each.

    Only for commands whose replies contain no empty line: those of
    operations and transactions, and `show info`. A missing reply is returned
    as an empty one, like many successful replies: check `count_replies`
    first.
    """
    replies = [reply.strip("\n") for reply in _replies(text)]
    return tuple(replies[:count]) + ("",) * (count - len(replies))


def count_replies(text: str) -> int:
    """Return the number of replies in *text*; it is lower than that of the commands if the connection broke."""
    return sum(1 for _ in _replies(text))


def check_reply(command: str, reply: str) -> RuntimeCommandError | None:
    """Return the error of *command*, for the caller to raise; None for success."""
    text = reply.strip()
    words = command.split(" ", 5)
    pattern = _ADDRESS_REPLY if words[:2] == ["set", "server"] and words[3:4] == ["addr"] else _expected(words)
    accepted = not text if pattern is None else pattern.search(text) is not None
    return None if accepted else RuntimeCommandError(command, text)


def _expected(words: Sequence[str]) -> re.Pattern[str] | None:
    """Return the pattern of a successful reply; None if that is empty."""
    return _REPLIES.get(" ".join(words[:3])) or _REPLIES.get(" ".join(words[:2]))


def _replies(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.split("\n")[:-1]:
        if line:
            lines.append(line)
        else:
            yield "\n".join(lines)
            lines = []


def _file(name: str) -> str:
    if name[:1] in {"#", "@"}:
        raise UnsendableError(f"no command can name the map or list {name!r}: its name begins with # or @")
    return name


def _key(key: str) -> str:
    # HAProxy reads such a key as the number of an entry, escaped or not.
    if key[:1] == "#":
        raise UnsendableError("no command can name a key that begins with #")
    return key


def _payload_line(key: str, value: str) -> str:
    line = f"{key} {value}\n"
    if not key or not value or _FORBIDDEN.search(line[:-1]):
        raise UnsendableError("no command can carry a map entry without key or value, or with a line break or NUL")
    return _checked(line)


def _checked(command: str) -> str:
    if len(command.encode(errors="surrogateescape")) > MAX_COMMAND_BYTES:
        raise UnsendableError(f"the command is longer than {MAX_COMMAND_BYTES} bytes")
    return command
