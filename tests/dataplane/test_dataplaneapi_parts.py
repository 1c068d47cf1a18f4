"""The decisions of the Data Plane API endpoint that need no API."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.dataplaneapi_client import Credentials, quote_name
from haptic_trio.dataplane.dataplaneapi_config import describe_refusal, describe_reload, read_refusal, strip_header
from haptic_trio.dataplane.dataplaneapi_manifest import (
    NOTHING,
    Manifest,
    begin,
    decode_manifest,
    encode_manifest,
    finish,
    pack_text,
    places_of,
    unpack_text,
)
from haptic_trio.dataplane.dataplaneapi_probe import read_version
from haptic_trio.dataplane.dataplaneapi_runtime import Call, adapt, make_call
from haptic_trio.dataplane.dataplaneapi_storage import Place, Store, StoredFile, check_place, place_files
from haptic_trio.haproxy.commands import UnsendableError
from haptic_trio.haproxy.model import FileKind, digest_of, make_file
from haptic_trio.haproxy.operations import (
    AddMapEntry,
    AddServer,
    DeleteMapEntry,
    Operation,
    ReplaceMap,
    SetMapEntry,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
)
from tests.support.dataplaneapi_builders import certificate, crt_list, general, generation, map_file
from tests.support.dataplaneapi_state import ROOT, rewrite, with_header

HOSTS = f"{ROOT}/maps/host.map"
TEXTS = st.text(st.characters(codec="utf-8")) | st.binary().map(lambda data: data.decode(errors="surrogateescape"))


@given(st.integers(1, 10**6))
def test_header_of_the_api_is_taken_off_whatever_the_version(version: int) -> None:
    text = rewrite(generation().text)

    assert strip_header(with_header(text, version)) == text
    assert strip_header(text) == text


def test_comments_of_the_author_are_no_header() -> None:
    assert strip_header("\n# mine\n# _version=3\nglobal\n") == "# mine\n# _version=3\nglobal\n"


def test_refusal_has_every_message_with_its_line_and_no_summary() -> None:
    words = (
        'validation error: exit status 1: msg="config parsing [/tmp/x:23] unknown keyword \\"a\\\\b\\"."\n'
        'msg="config Missing LF on last line"\n'
        'msg="config Error(s) found in configuration file /tmp/x"\n'
        'msg="config Fatal errors found in configuration."'
    )

    assert [(one.line, one.message) for one in read_refusal(words)] == [
        (23, 'unknown keyword "a\\b".'),
        (0, "Missing LF on last line"),
    ]
    assert describe_refusal(words).startswith('haproxy.cfg:23: unknown keyword "a')


@pytest.mark.parametrize(
    ("words", "description"),
    [("", "refused without a word"), ("invalid configuration: no newline", "invalid configuration: no newline")],
)
def test_refusal_without_messages_is_quoted(words: str, description: str) -> None:
    assert describe_refusal(words) == description


def test_failed_reload_is_described_by_its_alerts() -> None:
    output = "[NOTICE]   (7) : haproxy version is 2.8\n[ALERT]    (7) : config : parsing [a.cfg:3] : no such file\n"

    assert describe_reload(output) == "a.cfg:3: no such file"
    assert describe_reload("exit status 1\n") == "exit status 1"
    assert describe_reload("") == "reload failed without a word"


@given(TEXTS)
def test_packed_text_is_unpacked_as_it_was(text: str) -> None:
    assert unpack_text(pack_text(text)) == text


@pytest.mark.parametrize("packed", ["AAAA", "§", pack_text("global\n")[:-8]])
def test_damaged_text_is_not_unpacked(packed: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_text(packed)


@given(st.binary())
def test_note_of_any_bytes_is_read_or_says_that_nobody_knows(data: bytes) -> None:
    assert decode_manifest(data) == NOTHING


def test_note_knows_all_files_of_ours_before_and_after_a_deployment() -> None:
    former = finish(
        NOTHING, generation(files=(general("a", "1"), general("b", "2"))), text="", stored="", certificates={}
    )
    desired = generation(files=(general("b", "3"), general("c", "4"), certificate("a.pem", b"key")))
    sealed = {Place(Store.CERTIFICATES, "a.pem"): StoredFile("a.pem", size=3, serial="7")}

    begun = begin(former, place_files(desired.files.values())[0])
    done = finish(begun, desired, text=pack_text(desired.text), stored="stored", certificates=sealed)

    assert not begun.clear
    assert {place.name for place in begun.surplus} == {"c", "a.pem"}
    assert begun.generation == former.generation
    assert done.clear
    assert done.surplus == (Place(Store.GENERAL, "a"),)
    assert done.stored == digest_of("stored")
    assert done.files[f"{ROOT}/ssl/a.pem"].seal == sealed[Place(Store.CERTIFICATES, "a.pem")].seal
    assert {place.name for place in places_of(done)} == {"host.map", "b", "c", "a.pem"}
    assert decode_manifest(encode_manifest(done)) == done
    assert isinstance(done, Manifest)


def test_files_are_written_so_that_none_names_one_that_is_missing() -> None:
    files = (crt_list("list.txt", "a.pem"), map_file("host.map", "a b\n"), certificate("a.pem", b""), general("x", ""))

    placed, problems = place_files(files)

    assert problems == []
    assert [place.store for place in placed] == [Store.CERTIFICATES, Store.GENERAL, Store.MAPS, Store.CRT_LISTS]


@pytest.mark.parametrize(
    "path", ["maps/.map", "maps/-a.map", "maps/a", "maps/a b.map", "maps/..", "maps/", "maps/ä.map"]
)
def test_names_that_the_api_would_change_are_refused(path: str) -> None:
    placed, problems = place_files([make_file(FileKind.MAP, path, "")])

    assert placed == {}
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("path", "stored", "is_found"),
    [
        ("/etc/haproxy/maps/a.map", "/etc/haproxy/maps/a.map", True),
        ("/etc/haproxy/maps/a.map", "/var/maps/a.map", False),
        ("maps/a.map", "/etc/haproxy/maps/a.map", True),
        ("maps/a.map", "/etc/haproxy/mymaps/a.map", False),
        ("a.map", "/etc/haproxy/maps/a.map", True),
        ("maps/a.map", "", True),
    ],
)
def test_place_of_a_file_agrees_with_the_path_in_the_configuration(path: str, stored: str, is_found: bool) -> None:
    place = Place(Store.MAPS, "a.map")

    assert (check_place(place, path, StoredFile("a.map", stored)) == "") is is_found
    assert check_place(place, path, StoredFile("a_map.map", stored))


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        (
            SetServerAddress("app", "a", "::1", 80),
            Call("PUT", "runtime/backends/app/servers/a", {"address": "::1", "port": 80}),
        ),
        (SetServerWeight("app", "a", 0), Call("PUT", "runtime/backends/app/servers/a", {"weight": 0})),
        (SetServerState("app", "a", "drain"), Call("PUT", "runtime/backends/app/servers/a", {"admin_state": "drain"})),
        (
            AddMapEntry(HOSTS, "*.example.com", "app"),
            Call("POST", "runtime/maps/host.map/entries", {"key": "*.example.com", "value": "app"}),
        ),
        (SetMapEntry(HOSTS, "a/b?c", "app"), Call("PUT", "runtime/maps/host.map/entries/a%2Fb%3Fc", {"value": "app"})),
        (DeleteMapEntry(HOSTS, "a"), Call("DELETE", "runtime/maps/host.map/entries/a")),
        (ReplaceMap(HOSTS, (("a", "b"),)), Call("PUT", "runtime/maps/host.map", [{"key": "a", "value": "b"}])),
        (ReplaceMap(HOSTS, ()), Call("DELETE", "runtime/maps/host.map")),
    ],
)
def test_operation_becomes_one_request(operation: Operation, call: Call) -> None:
    assert make_call(operation) == call


@pytest.mark.parametrize(
    "operation",
    [
        SetServerAddress("app", "a", "127.0.0.1 port 1", 80),
        SetServerWeight("a;b", "a", 1),
        SetServerWeight("..", "a", 1),
        AddMapEntry(HOSTS, "a", "b c"),
        AddMapEntry(HOSTS, "a\nb", "c"),
        AddMapEntry(HOSTS, "#1", "c"),
        SetMapEntry(HOSTS, "a", "b;shutdown"),
        DeleteMapEntry(HOSTS, "*.example.com"),
        DeleteMapEntry(HOSTS, "."),
        ReplaceMap(HOSTS, (("a", "b\\ c"),)),
        AddServer("app", "new", "127.0.0.1:80"),
    ],
)
def test_what_could_be_read_as_something_else_is_not_sent(operation: Operation) -> None:
    with pytest.raises(UnsendableError):
        make_call(operation)


@given(st.text(min_size=1))
def test_keys_and_values_are_sent_as_one_plain_word_or_not_at_all(word: str) -> None:
    try:
        call = make_call(SetMapEntry(HOSTS, word, word))
    except UnsendableError:
        return
    segment = call.path.rpartition("/")[2]
    assert segment == quote_name(word)
    assert segment not in {".", ".."}
    assert word.split() == [word]
    assert not set(word) & set(";\\<\"'#$|\r\n\0")


def test_map_whose_key_no_path_can_hold_is_replaced_after_all_else() -> None:
    desired = generation(hosts="*.example.com app\n")
    steps: list[Operation] = [
        SetMapEntry(HOSTS, "*.example.com", "app"),
        DeleteMapEntry(HOSTS, "b.example.com"),
        SetServerWeight("app", "a", 3),
    ]

    assert list(adapt(steps, desired)) == [
        SetServerWeight("app", "a", 3),
        ReplaceMap(HOSTS, (("*.example.com", "app"),)),
    ]


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.8.25-5cf5d0683", (2, 8)), ("v3.2.1 abcdef", (3, 2)), (" dev.dirty", None), ("3.5-dev5", (3, 5)), ("", None)],
)
def test_version_is_read_from_its_beginning(text: str, version: tuple[int, int] | None) -> None:
    assert read_version(text) == version


def test_credentials_are_not_shown() -> None:
    credentials = Credentials(username="hidden-name", password="hidden-word")

    assert "hidden" not in f"{credentials!r} {credentials} {credentials.__rich_repr__()}"
