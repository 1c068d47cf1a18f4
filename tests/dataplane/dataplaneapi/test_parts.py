"""The decisions of the Data Plane API endpoint that need no API."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.dataplaneapi.calls import Call, adapt, make_call
from haptic_trio.dataplane.dataplaneapi.client import Credentials, quote_name
from haptic_trio.dataplane.dataplaneapi.config import describe_rejection, read_rejection, strip_header
from haptic_trio.dataplane.dataplaneapi.manifest import (
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
from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.dataplane.dataplaneapi.servers import OPTIONS
from haptic_trio.dataplane.dataplaneapi.storage import Place, Store, StoredFile, place_files
from haptic_trio.haproxy.model import digest_of
from haptic_trio.haproxy.plan.commands import UnsendableError
from haptic_trio.haproxy.plan.operations import (
    AddBackend,
    AddCrtListEntry,
    AddMapEntry,
    AddServer,
    DeleteCertificate,
    DeleteCrtListEntry,
    DeleteMapEntry,
    DeleteServer,
    EnableChecks,
    Operation,
    ReplaceMap,
    SetMapEntry,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
    StoreCertificate,
)
from tests.support.dataplaneapi.builders import certificate, general, generation
from tests.support.dataplaneapi.contract import CONTRACT, check_value
from tests.support.dataplaneapi.state import ROOT, rewrite, with_header

HOSTS = f"{ROOT}/maps/host.map"
KEY = b"-----BEGIN PRIVATE KEY-----\n"
PATHS = Paths({"ssl/ca.pem": "/etc/api/ca.pem"})
TEXTS = st.text(st.characters(codec="utf-8")) | st.binary().map(lambda data: data.decode(errors="surrogateescape"))


@given(st.integers(1, 10**6))
def test_header_of_the_api_is_taken_off_whatever_the_version(version: int) -> None:
    text = rewrite(generation().text)

    assert strip_header(with_header(text, version)) == text
    assert strip_header(text) == text


def test_comments_of_the_author_are_no_header() -> None:
    assert strip_header("\n# mine\n# _version=3\nglobal\n") == "# mine\n# _version=3\nglobal\n"


def test_rejection_has_every_message_with_its_line_and_no_summary() -> None:
    words = (
        'validation error: exit status 1: msg="config parsing [/tmp/x:23] unknown keyword \\"a\\\\b\\"."\n'
        'msg="config Missing LF on last line"\n'
        'msg="config Error(s) found in configuration file /tmp/x"\n'
        'msg="config Fatal errors found in configuration."'
    )

    assert [(one.line, one.message) for one in read_rejection(words)] == [
        (23, 'unknown keyword "a\\b".'),
        (0, "Missing LF on last line"),
    ]
    assert describe_rejection(words) == 'haproxy.cfg:23: unknown keyword "…".; haproxy.cfg: Missing LF on last line'


@pytest.mark.parametrize(
    ("words", "description"),
    [("", "rejected without a message"), ("invalid configuration: no newline", "invalid configuration: no newline")],
)
def test_rejection_without_messages_is_quoted(words: str, description: str) -> None:
    assert describe_rejection(words) == description


@given(TEXTS)
def test_packed_text_is_unpacked_as_it_was(text: str) -> None:
    assert unpack_text(pack_text(text)) == text


@pytest.mark.parametrize("packed", ["AAAA", "§", pack_text("global\n")[:-8]])
def test_damaged_text_is_not_unpacked(packed: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_text(packed)


@given(st.binary())
def test_manifest_of_any_bytes_is_read_or_not_clear(data: bytes) -> None:
    assert decode_manifest(data) == NOTHING


def test_manifest_has_all_own_files_before_and_after_a_deployment() -> None:
    before = generation(files=(general("a", "1"), general("b", "2")))
    placed_before = place_files(before.files.values())[0]
    former = finish(NOTHING, before, placed_before, text="", stored="", known={}, certificates={})
    desired = generation(files=(general("b", "3"), general("c", "4"), certificate("a.pem", KEY)))
    place = Place(Store.CERTIFICATES, "a.pem")
    sealed = {place: StoredFile("a.pem", f"{ROOT}/ssl/a.pem", size=3, serial="7")}
    placed = place_files(desired.files.values())[0]

    begun = begin(former, placed)
    done = finish(
        begun, desired, placed, text=pack_text(desired.text), stored="stored", known=sealed, certificates=sealed
    )

    assert not begun.clear
    assert {one.name for one in begun.surplus} == {"c", "a.pem"}
    assert begun.generation == former.generation
    assert done.clear
    assert done.surplus == (Place(Store.GENERAL, "a"),)
    assert done.stored == digest_of("stored")
    record = done.files[f"{ROOT}/ssl/a.pem"]
    assert (record.place, record.at, record.seal) == (place, f"{ROOT}/ssl/a.pem", sealed[place].seal)
    assert {one.name for one in places_of(done)} == {"host.map", "b", "c", "a.pem"}
    assert decode_manifest(encode_manifest(done)) == done
    assert isinstance(done, Manifest)


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
        (
            AddServer("app", "new", "[::1]:80", ("maxconn", "7", "ssl", "verify", "none", "ca-file", "ssl/ca.pem")),
            Call(
                "POST",
                "runtime/backends/app/servers",
                {
                    "name": "new",
                    "address": "::1",
                    "port": 80,
                    "maxconn": 7,
                    "ssl": "enabled",
                    "verify": "none",
                    "ssl_cafile": "/etc/api/ca.pem",
                },
            ),
        ),
        (DeleteServer("app", "a"), Call("DELETE", "runtime/backends/app/servers/a")),
        (
            StoreCertificate("ssl/ca.pem", b"hidden"),
            Call("PUT", "runtime/ssl_certs/%2Fetc%2Fapi%2Fca.pem", upload=("ca.pem", b"hidden")),
        ),
        (DeleteCertificate("ssl/b.pem"), Call("DELETE", "runtime/ssl_certs/ssl%2Fb.pem")),
        (
            AddCrtListEntry("ssl/l.txt", "ssl/ca.pem [alpn h2] *.example.com !x.example.com"),
            Call(
                "POST",
                "runtime/ssl_crt_lists/entries",
                {
                    "file": "/etc/api/ca.pem",
                    "ssl_bind_config": "alpn h2",
                    "sni_filter": ["*.example.com", "!x.example.com"],
                },
                {"name": "ssl/l.txt"},
            ),
        ),
        (
            DeleteCrtListEntry("ssl/l.txt", "ssl/ca.pem"),
            Call(
                "DELETE",
                "runtime/ssl_crt_lists/entries",
                params={"name": "ssl/l.txt", "cert_file": "/etc/api/ca.pem"},
            ),
        ),
    ],
)
def test_operation_becomes_one_request(operation: Operation, call: Call) -> None:
    assert make_call(operation, PATHS) == call
    assert "hidden" not in repr(call)


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
        AddServer("app", "new", "127.0.0.1:80", ("check",)),
        AddServer("app", "new", "127.0.0.1:80", ("sni", "str(a b)")),
        AddServer("app", "new", "127.0.0.1:80", ("maxconn", "many")),
        AddServer("app", "new", "unix@/run/x"),
        AddServer("app", "a b", "127.0.0.1:80"),
        StoreCertificate("ssl/a.pem", b"pem", is_new=True),
        DeleteCertificate("ssl/a b.pem"),
        AddCrtListEntry("ssl/l.txt", "one\ntwo"),
        EnableChecks("app", "a"),
        AddBackend("app", "base", "http"),
    ],
)
def test_what_could_be_read_as_something_else_is_not_sent(operation: Operation) -> None:
    with pytest.raises(UnsendableError):
        make_call(operation, PATHS)


@given(st.text(min_size=1))
def test_keys_and_values_are_sent_as_one_plain_word_or_not_at_all(word: str) -> None:
    try:
        call = make_call(SetMapEntry(HOSTS, word, word), PATHS)
    except UnsendableError:
        return
    segment = call.path.rpartition("/")[2]
    assert segment == quote_name(word)
    assert segment not in {".", ".."}
    assert word.split() == [word]
    assert not set(word) & set(";\\<\"'#$\r\n\0")


ENTRIES = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("xyz"))


@given(ENTRIES, ENTRIES)
def test_replaced_map_becomes_steps_from_the_present_entries(before: dict[str, str], after: dict[str, str]) -> None:
    replace = ReplaceMap(HOSTS, tuple(after.items()))
    first, last = SetServerWeight("app", "a", 3), SetServerWeight("app", "b", 3)

    steps = adapt([first, replace, last], generation(), {HOSTS: tuple(before.items())})

    present = dict(before)
    for step in steps[1:-1]:
        match step:
            case AddMapEntry(_, key, value):
                assert key not in present
                present[key] = value
            case SetMapEntry(_, key, value):
                assert present[key] != value
                present[key] = value
            case DeleteMapEntry(_, key):
                del present[key]
    assert present == after
    assert (steps[0], steps[-1]) == (first, last)


def test_map_with_unknown_entries_is_not_replaced() -> None:
    with pytest.raises(UnsendableError):
        adapt([ReplaceMap(HOSTS, ())], generation(), {})


def test_every_option_of_a_server_that_is_offered_has_a_field_of_the_contract() -> None:
    contract = CONTRACT["POST /services/haproxy/runtime/backends/{parent_name}/servers"]["schema"]["properties"]
    samples = {"ssl-max-ver": "TLSv1.3", "ssl-min-ver": "TLSv1.2", "verify": "none", "ws": "h1"}

    for option in OPTIONS:
        for words in ((option,), (option, samples.get(option, "7"))):
            try:
                call = make_call(AddServer("app", "new", "127.0.0.1:80", words), PATHS)
            except UnsendableError:
                continue
            assert isinstance(call.json, dict)
            assert len(call.json) == 4, option
            assert call.json.keys() <= contract.keys()
            assert list(check_value(call.json, {"type": "object", "properties": contract}, writes=True)) == []
            break
        else:
            pytest.fail(option)


def test_credentials_are_not_shown() -> None:
    credentials = Credentials(username="hidden-name", password="hidden-word")

    assert "hidden" not in f"{credentials!r} {credentials} {credentials.__rich_repr__()}"
