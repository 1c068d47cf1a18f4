import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.plan.commands import (
    MAX_BATCH,
    MAX_COMMAND_BYTES,
    RuntimeCommandError,
    SimpleOperation,
    UnsendableError,
    abandon_version,
    check_reply,
    commit_version,
    count_replies,
    fill_version,
    format_command,
    join_commands,
    prepare_version,
    read_prepared_version,
    show_entries,
    split_replies,
)
from haptic_trio.haproxy.plan.operations import (
    AddAclEntry,
    AddMapEntry,
    DeleteAclEntry,
    DeleteMapEntry,
    ReplaceAcl,
    ReplaceMap,
    SetMapEntry,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
)
from haptic_trio.haproxy.runtime.replies import parse_map, parse_servers_state

Ask = Callable[[str], str]
Start = Callable[..., Ask]

MAP = "maps/h.map"
TEXT = f"""\
frontend f
  mode http
  bind unix@web
  use_backend %[path,map({MAP})]
backend b
  mode http
  server s 127.0.0.1:1
backend fixed
  balance static-rr
  server s 127.0.0.1:1
"""

# Everything that might have a meaning on the command line.
AWKWARD = " \t\v\f;\\<>\"'#$|@!%&*()[]{}/.,=+-~`^?:xn0é\udcff\x01\x1b\x7f"


@pytest.fixture
def ask(start_haproxy: Start) -> Ask:
    """A running HAProxy with the map and the servers of TEXT."""
    return start_haproxy(TEXT, {MAP: b"a 1\nb 2\n"})


@pytest.mark.parametrize(
    ("operation", "command"),
    [
        (SetServerAddress("b", "s", "10.0.0.1", 80), "set server b/s addr 10.0.0.1 port 80"),
        (SetServerWeight("b", "s", 0), "set server b/s weight 0"),
        (SetServerState("b", "s", "maint"), "set server b/s state maint"),
        (AddMapEntry(MAP, "k", "a b"), "add map maps/h.map k a\\ b"),
        (SetMapEntry(MAP, "k", "a;b\\c"), "set map maps/h.map k a\\;b\\\\c"),
        (DeleteMapEntry(MAP, "k"), "del map maps/h.map k"),
    ],
)
def test_an_operation_becomes_one_command(operation: SimpleOperation, command: str) -> None:
    assert format_command(operation) == command


@pytest.mark.parametrize(
    "operation",
    [
        AddMapEntry(MAP, "k", "two\nlines"),
        AddMapEntry(MAP, "k\r", "v"),
        AddMapEntry(MAP, "k", "a\0"),
        AddMapEntry(MAP, "k", ""),
        AddMapEntry(MAP, "k", "v" * MAX_COMMAND_BYTES),
        SetMapEntry(MAP, "#1", "v"),
        DeleteMapEntry(MAP, "#1"),
        AddMapEntry("#0", "k", "v"),
        AddMapEntry("@1", "k", "v"),
        SetServerState("b", "s\nshow info", "maint"),
        SetServerAddress("b", "s", "127.0.0.1", 65536),
        SetServerAddress("b", "s", "127.0.0.1", 0),
    ],
)
def test_values_that_no_command_can_carry_are_rejected(operation: SimpleOperation) -> None:
    with pytest.raises(UnsendableError):
        format_command(operation)


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_value_ends_a_command_or_begins_another(key: str, value: str) -> None:
    try:
        command = format_command(AddMapEntry("m", key, value))
    except UnsendableError:
        return
    except UnicodeEncodeError:
        assert any("\ud800" <= char <= "\udfff" for char in key + value)
        return
    bare = command.replace("\\\\", "").replace("\\;", "").replace("\\<", "")
    assert not set(bare) & set(";<\n\r\0")


def test_a_transaction_is_prepared_filled_in_pieces_and_committed() -> None:
    entries = [(f"key-{number}", "v" * 100) for number in range(1000)]
    replacement = ReplaceMap(MAP, tuple(entries))
    pieces = list(fill_version(replacement, 7))
    assert prepare_version(replacement) == "prepare map maps/h.map"
    assert commit_version(replacement, 7) == "commit map @7 maps/h.map"
    assert abandon_version(replacement, 7) == "clear map @7 maps/h.map"
    assert all(piece.startswith("add map @7 maps/h.map <<\n") and piece.endswith("\n\n") for piece in pieces)
    assert all(len(piece) <= MAX_COMMAND_BYTES + 1 for piece in pieces)
    lines = [line for piece in pieces for line in piece.split("\n")[1:-2]]
    assert lines == [f"{key} {value}" for key, value in entries]


def test_the_transaction_of_a_list_has_a_command_for_each_key() -> None:
    replacement = ReplaceAcl("x.acl", ("a b", "#c;"))
    assert prepare_version(replacement) == "prepare acl x.acl"
    assert list(fill_version(replacement, 7)) == ["add acl @7 x.acl a\\ b", "add acl @7 x.acl \\#c\\;"]
    assert commit_version(replacement, 7) == "commit acl @7 x.acl"
    assert abandon_version(replacement, 7) == "clear acl @7 x.acl"
    assert show_entries(replacement) == "show acl x.acl"


@pytest.mark.parametrize(
    "operation", [AddAclEntry("@x", "a"), AddAclEntry("#1", "a"), DeleteAclEntry("x", "#1"), AddAclEntry("x", "a\nb")]
)
def test_keys_with_a_special_meaning_are_not_sent(operation: SimpleOperation) -> None:
    with pytest.raises(UnsendableError):
        format_command(operation)


def test_nothing_follows_a_payload_in_a_batch() -> None:
    (piece,) = fill_version(ReplaceMap(MAP, (("a", "b"),)), 1)
    assert join_commands(["show version", piece]).count("\n\n") == 1
    with pytest.raises(UnsendableError):
        join_commands([piece, "show version"])


def test_replies_of_a_batch_are_separated() -> None:
    text = "\nNo such backend.\n\nIP changed from 'a' to 'b' by 'x'\n\n\n"
    assert split_replies(text, 4) == ("", "No such backend.", "IP changed from 'a' to 'b' by 'x'", "")
    assert count_replies(text) == 4
    assert count_replies("\nNo such") == 1


@pytest.mark.haproxy
def test_real_haproxy_accepts_every_operation(ask: Ask) -> None:
    operations: list[SimpleOperation] = [
        SetServerAddress("b", "s", "127.0.0.2", 81),
        SetServerAddress("b", "s", "127.0.0.2", 81),
        SetServerAddress("b", "s", "127.0.0.2", 82),
        SetServerAddress("b", "s", "::1", 82),
        SetServerWeight("b", "s", 256),
        SetServerState("b", "s", "drain"),
        SetServerState("b", "s", "maint"),
        AddMapEntry(MAP, "c", "x y;z"),
        SetMapEntry(MAP, "a", "<<"),
        DeleteMapEntry(MAP, "b"),
    ]
    commands = [format_command(operation) for operation in operations]
    replies = split_replies(ask(join_commands(commands)), len(commands))
    assert [check_reply(*pair) for pair in zip(commands, replies, strict=True)] == [None] * len(commands)
    assert parse_map(ask(f"show map {MAP}")) == (("a", "<<"), ("c", "x y;z"))
    (server,) = parse_servers_state(ask("show servers state b"))
    assert (server.address, server.port, server.weight, server.state) == ("::1", 82, 256, "maint")


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("set server nope/s addr 127.0.0.1 port 1", "No such backend"),
        ("set server b/nope addr 127.0.0.1 port 1", "No such server"),
        ("set server b/s addr nonsense port 1", "Invalid addr"),
        ("set server b/s addr 127.0.0.9 port abc", "problem converting port"),
        ("set server b/s weight 999", "weight"),
        ("set server fixed/s weight 7", "static LB algorithm"),
        ("set server b/s state happy", "expects"),
        ("add map nope k v", "Unknown map"),
        ("set map maps/h.map nope v", "not found"),
        ("del map maps/h.map nope", "not found"),
        ("prepare map nope", "Unknown map"),
        ("commit map @99 maps/h.map", "ersion"),
        ("add map @99 maps/h.map <<\nk v\n\n", "ersion"),
        ("no such command", "Unknown command"),
    ],
)
def test_a_rejection_by_real_haproxy_is_detected(ask: Ask, command: str, reply: str) -> None:
    error = check_reply(command, ask(command))
    assert isinstance(error, RuntimeCommandError)
    assert error.command == command
    assert reply in error.reply
    assert "\n" not in str(error).partition("':")[0]


@pytest.mark.parametrize(
    "command",
    [
        "add map maps/h.map S3CRET\\ key S3CRET",
        "set map maps/h\\ h.map key S3CRET",
        "del acl @7 lists/h.list S3CRET",
        "add map @7 maps/h.map <<\nS3CRET S3CRET\n\n",
    ],
)
def test_an_error_shows_no_entry_of_a_map_or_list(command: str) -> None:
    error = RuntimeCommandError(command, "no such entry 'S3CRET'")

    assert "S3CRET" not in str(error)
    assert str(error).startswith(f"'{' '.join(command.split(' ')[:3])}")


@pytest.mark.haproxy
def test_a_failure_in_a_batch_is_assigned_to_its_command(ask: Ask) -> None:
    commands = [f"set server b/s weight {number}" for number in range(MAX_BATCH)]
    commands[10] = "set server nope/s weight 1"
    answer = ask(join_commands(commands))
    replies = split_replies(answer, len(commands))
    assert count_replies(answer) == len(commands)
    failed = [index for index, pair in enumerate(zip(commands, replies, strict=True)) if check_reply(*pair)]
    assert failed == [10]
    assert parse_servers_state(ask("show servers state b"))[0].weight == MAX_BATCH - 1


@pytest.mark.haproxy
def test_special_characters_arrive_unchanged(ask: Ask) -> None:
    generator = random.Random(3)
    entries: dict[str, str] = {}
    for index in range(400):
        key = f"k{index}" + "".join(generator.choices(AWKWARD, k=3)).translate(
            {ord(blank): None for blank in " \t\v\f"}
        )
        value = "".join(generator.choices(AWKWARD, k=8)).strip(" \t\v\f")
        if value:
            entries[key] = value
    assert ask(f"clear map {MAP}") == "\n"
    commands = [format_command(AddMapEntry(MAP, key, value)) for key, value in entries.items()]
    for start in range(0, len(commands), MAX_BATCH):
        ask(join_commands(commands[start : start + MAX_BATCH]))
    assert dict(parse_map(ask(f"show map {MAP}"))) == entries
    changed = {key: value[::-1].strip(" \t\v\f") for key, value in entries.items()}
    commands = [format_command(SetMapEntry(MAP, key, value)) for key, value in changed.items()]
    commands += [format_command(DeleteMapEntry(MAP, key)) for key in list(changed)[::2]]
    for start in range(0, len(commands), MAX_BATCH):
        ask(join_commands(commands[start : start + MAX_BATCH]))
    assert list(parse_map(ask(f"show map {MAP}"))) == list(changed.items())[1::2]


@pytest.mark.haproxy
def test_a_transaction_replaces_a_map_with_exactly_its_entries(ask: Ask) -> None:
    generator = random.Random(4)
    blanks = {ord(blank): None for blank in " \t\v\f"}
    entries = [
        (f"{index}" + "".join(generator.choices(AWKWARD, k=3)).translate(blanks), f"v{generator.choice(AWKWARD)}v")
        for index in range(3000)
    ]
    entries += [("#hash", "x"), ("twice", "1"), ("twice", "2"), ("k", "<<")]
    replacement = ReplaceMap(MAP, tuple(entries))
    prepare = prepare_version(replacement)
    version = read_prepared_version(prepare, ask(prepare))
    for command in fill_version(replacement, version):
        assert check_reply(command, ask(command)) is None
    assert parse_map(ask(f"show map {MAP}")) == (("a", "1"), ("b", "2"))
    commit = commit_version(replacement, version)
    assert check_reply(commit, ask(commit)) is None
    assert list(parse_map(ask(f"show map {MAP}"))) == entries


@pytest.mark.haproxy
def test_a_discarded_transaction_leaves_the_map_unchanged(ask: Ask) -> None:
    replacement = ReplaceMap(MAP, (("new", "x"),))
    prepare = prepare_version(replacement)
    version = read_prepared_version(prepare, ask(prepare))
    for command in [*fill_version(replacement, version), abandon_version(replacement, version)]:
        assert check_reply(command, ask(command)) is None
    assert parse_map(ask(f"show map {MAP}")) == (("a", "1"), ("b", "2"))
    with pytest.raises(RuntimeCommandError):
        read_prepared_version("prepare map nope", ask("prepare map nope"))
