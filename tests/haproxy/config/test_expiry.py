"""Expiry of the certificates in a generation."""

from datetime import UTC, datetime, timedelta

import pytest
import trustme

from haptic_trio.haproxy.config.expiry import SOONEST, SOONEST_HOSTS, find_expiries
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def pem_of(authority: trustme.CA, days: int, *, chained: bool = True) -> bytes:
    """Return key, leaf and chain, the leaf of which lives *days* from BEGIN on."""
    leaf = authority.issue_cert("web.localhost", not_after=BEGIN + timedelta(days=days))
    chain = [blob.bytes() for blob in leaf.cert_chain_pems] if chained else [leaf.cert_chain_pems[0].bytes()]
    return b"".join([leaf.private_key_pem.bytes(), *chain, authority.cert_pem.bytes()])


def generation_of(**files: bytes) -> Generation:
    """Return a generation with these certificates, and a map."""
    certificates = [make_file(FileKind.CERT, f"ssl/{name}.pem", content) for name, content in files.items()]
    return make_generation(parse_config("global\n"), [*certificates, make_file(FileKind.MAP, "maps/a.map", b"a b\n")])


def test_leaf_of_each_certificate_counts_and_the_soonest_come_first(authority: trustme.CA) -> None:
    found = find_expiries(generation_of(late=pem_of(authority, 9), soon=pem_of(authority, 2)))

    assert found.count == 2
    assert [one.file for one in found.soonest] == ["ssl/soon.pem", "ssl/late.pem"]
    assert found.times == tuple((BEGIN + timedelta(days=days)).timestamp() for days in (2, 9))


def test_only_so_many_are_named_and_all_are_counted(authority: trustme.CA) -> None:
    content = pem_of(authority, 3)
    found = find_expiries(generation_of(**{f"c{number}": content for number in range(SOONEST + 5)}))

    assert found.count == SOONEST + 5
    assert len(found.soonest) == SOONEST
    assert len(found.times) == SOONEST + 5


def test_each_host_has_the_expiry_of_its_first_certificate_to_expire(authority: trustme.CA) -> None:
    files = {"late": pem_of(authority, 9), "soon": pem_of(authority, 2), "other": pem_of(authority, 5)}
    certificates = [make_file(FileKind.CERT, f"ssl/{name}.pem", content) for name, content in files.items()]
    lines = (
        b"ssl/late.pem a.test *.b.test !c.b.test\nssl/soon.pem [alpn h2] A.test\nssl/other.pem\nssl/absent.pem d.test\n"
    )
    listed = make_file(FileKind.CRT_LIST, "crt-lists/https.list", lines)
    found = find_expiries(make_generation(parse_config("global\n"), [*certificates, listed]))

    def at(days: int) -> float:
        return (BEGIN + timedelta(days=days)).timestamp()

    assert [(one.host, one.at) for one in found.hosts] == [
        ("a.test", at(2)),
        ("web.localhost", at(5)),
        ("*.b.test", at(9)),
    ]


def test_only_so_many_hosts_are_named(authority: trustme.CA) -> None:
    hosts = " ".join(f"h{number}.test" for number in range(SOONEST_HOSTS + 5))
    certificate = make_file(FileKind.CERT, "ssl/a.pem", pem_of(authority, 3))
    listed = make_file(FileKind.CRT_LIST, "crt-lists/https.list", f"ssl/a.pem {hosts}\n".encode())

    assert len(find_expiries(make_generation(parse_config("global\n"), [certificate, listed])).hosts) == SOONEST_HOSTS


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
)
def test_what_is_not_a_certificate_is_left_out(content: bytes) -> None:
    assert find_expiries(generation_of(broken=content)).count == 0


def test_what_is_remembered_of_a_file_holds_no_key(authority: trustme.CA) -> None:
    generation = generation_of(web=pem_of(authority, 3))
    find_expiries(generation)

    (file,) = generation.files_of(FileKind.CERT)
    assert file.memo == {"expires": (BEGIN + timedelta(days=3)).timestamp()}
