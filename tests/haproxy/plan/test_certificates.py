from collections.abc import Mapping

import pytest
import trustme

from haptic_trio.haproxy.config.certificates import names_of, parse_crt_list
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.capabilities import NEWEST, Capabilities
from haptic_trio.haproxy.plan.operations import (
    AddCrtListEntry,
    DeleteCertificate,
    DeleteCrtListEntry,
    Plan,
    StoreCertificate,
    StoreTrust,
)
from haptic_trio.haproxy.plan.plan import OLDEST, make_plan

CA = trustme.CA()
LIST = "ssl/l.list"
TEXT = f"frontend f\n  mode http\n  bind 127.0.0.1:1 ssl crt-list {LIST} ca-file ssl/ca.pem verify optional\n"
KINDS = {"list": FileKind.CRT_LIST, "pem": FileKind.CERT}


def pem(*names: str) -> bytes:
    return CA.issue_cert(*names).private_key_and_cert_chain_pem.bytes()


A, B, B_RENEWED, C = pem("a.test"), pem("b.test"), pem("b.test"), pem("c.test")
BASE: dict[str, bytes] = {"ssl/a.pem": A, "ssl/b.pem": B}


def generation(files: Mapping[str, bytes], lines: list[str] | None, text: str) -> Generation:
    contents = dict(files)
    if lines is not None:
        contents[LIST] = "".join(f"{line}\n" for line in lines).encode()
    aux = [make_file(KINDS[path.rpartition(".")[2]], path, content) for path, content in contents.items()]
    return make_generation(parse_config(text), aux)


def plan(
    before: list[str] | None,
    after: list[str] | None,
    *,
    gone: Mapping[str, bytes] = BASE,
    come: Mapping[str, bytes] = BASE,
    text: str = TEXT,
    capabilities: Capabilities = OLDEST,
) -> Plan:
    return make_plan(generation(gone, before, text), generation(come, after, text), capabilities=capabilities)


AB = ["ssl/a.pem", "ssl/b.pem"]
WITH_C = {**BASE, "ssl/c.pem": C}


def test_a_new_content_of_a_listed_certificate_is_stored() -> None:
    found = plan(AB, AB, come={**BASE, "ssl/b.pem": B_RENEWED})
    assert found.operations == (StoreCertificate("ssl/b.pem", B_RENEWED),)


def test_no_key_is_shown_where_an_operation_is() -> None:
    found = plan(AB, AB, come={**BASE, "ssl/b.pem": B_RENEWED})
    assert "PRIVATE" not in repr(found)
    assert "PRIVATE" in str(found.operations[0].content if isinstance(found.operations[0], StoreCertificate) else "")


def test_an_added_certificate_is_stored_before_it_is_listed() -> None:
    assert plan(AB, [*AB, "ssl/c.pem [alpn  h2] c.test"], come=WITH_C).operations == (
        StoreCertificate("ssl/c.pem", C, is_new=True),
        AddCrtListEntry(LIST, "ssl/c.pem [alpn h2] c.test"),
    )


def test_a_removed_certificate_is_deleted_after_its_entry() -> None:
    assert plan([*AB, "ssl/c.pem"], AB, gone=WITH_C).operations == (
        DeleteCrtListEntry(LIST, "ssl/c.pem"),
        DeleteCertificate("ssl/c.pem"),
    )


def test_an_entry_that_changes_is_never_missing() -> None:
    assert plan(AB, ["ssl/a.pem", "ssl/b.pem x.test"]).operations == (
        AddCrtListEntry(LIST, "ssl/b.pem x.test"),
        DeleteCrtListEntry(LIST, "ssl/b.pem"),
    )


def test_comments_and_blanks_of_a_crt_list_mean_nothing() -> None:
    assert plan(AB, ["# first", "", "  ssl/a.pem ", "ssl/b.pem"]) == Plan()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (AB, ["ssl/b.pem"]),
        (AB, ["ssl/b.pem", "ssl/a.pem"]),
        (AB, ["ssl/a.pem x.test", "ssl/b.pem"]),
        (AB, [*AB, "ssl/a.pem x.test"]),
        (AB, [*AB, "ssl/unknown.pem"]),
        (AB, [*AB, '"ssl/c.pem"']),
        (AB, []),
        ([], AB),
        (AB, None),
    ],
)
def test_a_crt_list_reloads_when_its_default_changes_or_it_is_unusual(
    before: list[str], after: list[str] | None
) -> None:
    assert plan(before, after, come=WITH_C, gone=WITH_C).reloads


def test_where_no_default_is_served_the_first_entry_may_change() -> None:
    strict = TEXT.replace(" ca-file", " strict-sni ca-file")
    assert not plan(AB, ["ssl/c.pem", *AB], come=WITH_C, text=strict).reloads


@pytest.mark.parametrize(("before", "after"), [(AB, ["ssl/c.pem", *AB]), ([], AB), (AB, [])])
def test_the_first_entry_may_change_where_another_list_has_the_default(before: list[str], after: list[str]) -> None:
    ahead = TEXT.replace("ssl crt-list", "ssl crt ssl/default.pem crt-list")
    more = {**WITH_C, "ssl/default.pem": pem("default.test")}
    assert not plan(before, after, gone=more, come=more, text=ahead).reloads
    assert plan(
        before, after, gone=more, come=more, text=TEXT.replace(" ca-file", " crt ssl/default.pem ca-file")
    ).reloads


def test_a_line_that_no_command_can_carry_reloads() -> None:
    hosts = " ".join(f"host{number}.example.com" for number in range(1_000))
    assert plan(AB, ["ssl/a.pem", f"ssl/b.pem {hosts}"]).reloads


def test_names_that_are_excluded_are_not_served() -> None:
    (wide, none) = parse_crt_list(b"a.pem *.x.test !y.x.test\nb.pem !*\n") or ()
    certificate = make_file(FileKind.CERT, "b.pem", B)
    assert names_of(wide, None) == frozenset({"*.x.test"})
    assert names_of(none, certificate) == frozenset()


def test_an_entry_in_the_middle_reloads_only_if_another_one_has_its_name() -> None:
    middle = ["ssl/a.pem", "ssl/c.pem", "ssl/b.pem"]
    assert not plan(AB, middle, come=WITH_C).reloads
    assert plan(AB, middle, come={**BASE, "ssl/c.pem": pem("c.test", "B.test")}).reloads
    assert not plan(AB, [*AB, "ssl/c.pem"], come={**BASE, "ssl/c.pem": pem("b.test")}).reloads
    filtered = ["ssl/a.pem", "ssl/c.pem b.test", "ssl/b.pem"]
    assert plan(AB, filtered, come=WITH_C).reloads


def test_a_content_with_the_name_of_another_certificate_reloads() -> None:
    assert not plan(AB, AB, come={**BASE, "ssl/b.pem": pem("b.test", "bb.test")}).reloads
    assert plan(AB, AB, come={**BASE, "ssl/b.pem": pem("b.test", "a.test")}).reloads


ONE, TWO = (trustme.CA().cert_pem.bytes() for _ in range(2))
LISTED = ["ssl/a.pem", "ssl/b.pem [ca-file ssl/ca.pem verify optional]"]
PLAIN = TEXT.replace(" ca-file ssl/ca.pem verify optional", "")


@pytest.mark.parametrize(("lines", "text"), [(AB, TEXT), (LISTED, PLAIN), (LISTED, TEXT)], ids=["bind", "list", "both"])
def test_authorities_are_stored_if_they_are_more_or_sessions_end_with_trust(lines: list[str], text: str) -> None:
    def change(before: bytes, after: bytes, capabilities: Capabilities = OLDEST) -> Plan:
        gone, come = {**BASE, "ssl/ca.pem": before}, {**BASE, "ssl/ca.pem": after}
        return plan(lines, lines, gone=gone, come=come, text=text, capabilities=capabilities)

    assert change(ONE, TWO + ONE).operations == (StoreTrust("ca-file", "ssl/ca.pem", TWO + ONE),)
    assert change(ONE, TWO).reloads
    assert change(ONE + TWO, TWO).reloads
    assert change(ONE + TWO, TWO, NEWEST).operations == (StoreTrust("ca-file", "ssl/ca.pem", TWO),)


UPDATED = ["ssl/a.pem", "ssl/b.pem [ocsp-update on]"]


@pytest.mark.parametrize(("before", "after"), [(UPDATED, AB), (AB, UPDATED)])
def test_a_certificate_whose_ocsp_responses_are_fetched_or_no_longer_fetched_reloads(
    before: list[str], after: list[str]
) -> None:
    assert plan(before, after).reloads


def test_a_certificate_whose_ocsp_responses_are_fetched_comes_and_goes() -> None:
    assert not plan(AB[:1], UPDATED, gone={"ssl/a.pem": A}).reloads
    assert not plan(UPDATED, [AB[0], "ssl/b.pem [ocsp-update on] b.test"]).reloads


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (AB, TEXT.replace("ca-file ", "ca-file ssl/x.pem crl-file ")),
        (["ssl/a.pem", "ssl/b.pem [ca-file ssl/x.pem crl-file ssl/ca.pem]"], PLAIN),
        (["ssl/a.pem", "ssl/b.pem [ca-verify-file ssl/ca.pem]"], PLAIN),
        (["ssl/a.pem", "ssl/b.pem [ca-file ssl/ca.pem.old]"], PLAIN),
        (AB, PLAIN + "backend b\n  server s 127.0.0.1:1 ssl ca-file ssl/ca.pem\n"),
        (AB, TEXT + "backend b\n  default-server ssl ca-file ssl/ca.pem\n"),
    ],
    ids=["revocations", "listed revocations", "another option", "part of a name", "server", "bind and servers"],
)
def test_changes_that_could_keep_removed_trust_reload(lines: list[str], text: str) -> None:
    gone, come = {**BASE, "ssl/ca.pem": ONE}, {**BASE, "ssl/ca.pem": ONE + TWO}
    assert plan(lines, lines, gone=gone, come=come, text=text, capabilities=NEWEST).reloads


@pytest.mark.parametrize(
    ("before", "after"),
    [(LISTED, AB), (AB, LISTED), (AB[:1], LISTED), (AB, [AB[0], "ssl/b.pem [ca-verify-file ssl/ca.pem]"])],
)
def test_an_entry_that_asks_clients_for_certificates_comes_and_goes_only_if_sessions_end_with_it(
    before: list[str], after: list[str]
) -> None:
    assert plan(before, after).reloads
    assert not plan(before, after, capabilities=NEWEST).reloads


@pytest.mark.parametrize(
    "text",
    [
        "global\n  crt-base ssl\n" + TEXT,
        TEXT.replace("crt-list", "crt ssl/b.pem.d crt-list"),
        TEXT + "  http-request set-header x ssl/b.pem\n",
    ],
    ids=["another name", "part of another name", "another use"],
)
def test_a_certificate_with_another_reference_reloads(text: str) -> None:
    assert plan(AB, AB, come={**BASE, "ssl/b.pem": B_RENEWED}, text=text).reloads


def test_a_certificate_on_a_bind_line_is_stored() -> None:
    text = "frontend f\n  bind 127.0.0.1:1 ssl crt ssl/b.pem\n"
    assert plan(None, None, come={**BASE, "ssl/b.pem": B_RENEWED}, text=text).operations == (
        StoreCertificate("ssl/b.pem", B_RENEWED),
    )


def test_content_that_no_command_can_carry_reloads() -> None:
    assert plan(AB, AB, come={**BASE, "ssl/b.pem": B + b"# much\n" * 2000}).reloads


def test_a_certificate_whose_key_lies_beside_it_reloads() -> None:
    gone = {**BASE, "ssl/b.pem.key": b"k"}
    aux = [make_file(FileKind.CERT, path, content) for path, content in gone.items()]
    lists = make_file(FileKind.CRT_LIST, LIST, "\n".join(AB) + "\n")
    renewed = [file if file.path != "ssl/b.pem" else make_file(FileKind.CERT, "ssl/b.pem", B_RENEWED) for file in aux]
    config = parse_config(TEXT)
    assert make_plan(make_generation(config, [*aux, lists]), make_generation(config, [*renewed, lists])).reasons == (
        "certificate ssl/b.pem changed",
    )


def test_a_process_that_can_do_less_reloads() -> None:
    assert plan(AB, AB, come={**BASE, "ssl/b.pem": B_RENEWED}, capabilities=Capabilities()).reloads


def test_a_line_of_a_crt_list_has_a_certificate_options_and_filters() -> None:
    (entry,) = parse_crt_list(b"a.pem [alpn h2,http/1.1  verify none] *.x.test !y.x.test\n") or ()
    assert (entry.certificate, entry.options, entry.filters) == (
        "a.pem",
        "alpn h2,http/1.1 verify none",
        ("*.x.test", "!y.x.test"),
    )
    assert parse_crt_list(b"a.pem [alpn h2\n") is None
    assert parse_crt_list(b"\xff\n") is None
