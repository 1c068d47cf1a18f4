"""HAProxy accepts a reduced configuration if, and only if, it accepts the complete one."""

from pathlib import Path

import pytest
import trustme

from haptic_trio.dataplane.local.check import ConfigRejectedError, check_config
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.config.reduced import reduce_generation
from haptic_trio.haproxy.model import (
    AuxFile,
    Config,
    FileKind,
    Generation,
    Section,
    make_file,
    make_files,
    make_generation,
)

HEAD = """\
global
    maxconn 200

defaults web
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s

frontend http from web
    bind :8080
    bind :8443 ssl crt-list ssl/list.crt-list
    use_backend named if { path /named }
    use_backend %[path,map(maps/path.map)] if { nbsrv(b7) gt 0 }
"""


def backend(name: str, *lines: str) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"\nbackend {name} from web\n{body}    server s1 127.0.0.1:80\n"


AUTHORITY = trustme.CA()


def certificate(number: int) -> AuxFile:
    issued = AUTHORITY.issue_cert(f"host{number}.test")
    chain = b"".join(pem.bytes() for pem in (issued.private_key_pem, *issued.cert_chain_pems))
    return make_file(FileKind.CERT, f"ssl/host{number}.pem", chain, secret=True)


CERTIFICATES = [certificate(number) for number in range(5)]


def built(extra: str = "", *, count: int = 50, head: str = HEAD, files: list[AuxFile] | None = None) -> Generation:
    text = head + backend("named") + "".join(backend(f"b{number}") for number in range(count)) + extra
    entries = "".join(f"ssl/host{number}.pem\n" for number in range(5))
    default = [
        make_file(FileKind.MAP, "maps/path.map", "".join(f"/{n} b{n}\n" for n in range(count))),
        make_file(FileKind.CRT_LIST, "ssl/list.crt-list", entries),
        *CERTIFICATES,
    ]
    return make_generation(parse_config(text), make_files([*default, *(files or [])]))


async def is_accepted(binary: Path, generation: Generation) -> bool:
    try:
        await check_config(binary, generation, limit=120)
    except ConfigRejectedError:
        return False
    return True


GOOD = {
    "new backend": built(backend("new", "balance leastconn")),
    "new backend that others know": built(backend("new", "stick-table type ip size 100")),
    "changed backend": built(count=49),
    "new certificate": built(
        files=[certificate(9), make_file(FileKind.CRT_LIST, "ssl/list.crt-list", "ssl/host9.pem\n")]
    ),
    "other certificate": built(files=[certificate(0)]),
    "map": built(files=[make_file(FileKind.MAP, "maps/path.map", "/x b1\n")]),
    "rule that names a backend": built(head=HEAD + "    use_backend b3 if { path /3 }\n"),
}
BAD = {
    "mode": built(backend("new", "mode tcp") + "\nfrontend f from web\n    bind :9\n    default_backend new\n"),
    "missing server to track": built(backend("new", "server s2 127.0.0.1:1 track none/s1")),
    "unknown balance": built(backend("new", "balance nonsense")),
    "missing backend": built(head=HEAD + "    default_backend missing\n"),
    "not a certificate": built(files=[make_file(FileKind.CERT, "ssl/host3.pem", b"rubbish", secret=True)]),
    "missing certificate": built(
        files=[make_file(FileKind.CRT_LIST, "ssl/list.crt-list", "ssl/host1.pem\nssl/none.pem\n")]
    ),
    "missing table": built(head=HEAD + "    http-request track-sc0 src table b4\n"),
}


@pytest.mark.haproxy
@pytest.mark.parametrize("name", GOOD)
async def test_valid_changes_are_accepted_in_the_reduced_configuration(haproxy_binary: Path, name: str) -> None:
    reduced = reduce_generation(built(), GOOD[name])

    assert reduced is not None
    assert len(reduced.config.sections) < 10
    assert await is_accepted(haproxy_binary, GOOD[name])
    assert await is_accepted(haproxy_binary, reduced)


@pytest.mark.haproxy
@pytest.mark.parametrize("name", BAD)
async def test_invalid_changes_are_rejected_in_the_reduced_configuration(haproxy_binary: Path, name: str) -> None:
    reduced = reduce_generation(built(), BAD[name])

    assert reduced is not None
    assert not await is_accepted(haproxy_binary, BAD[name])
    assert not await is_accepted(haproxy_binary, reduced)


def test_lists_and_maps_are_reduced_to_the_needed_entries() -> None:
    reduced = reduce_generation(built(), built(backend("new"), files=[certificate(2)]))

    assert reduced is not None
    assert reduced.files["ssl/list.crt-list"].content == b"ssl/host0.pem\nssl/host2.pem\n"
    assert reduced.files["maps/path.map"].content == b"/0 b0\n"
    assert set(reduced.files) == {"ssl/list.crt-list", "maps/path.map", "ssl/host0.pem", "ssl/host2.pem"}
    assert [section.name for section in reduced.config.all("backend")][-3:] == ["new", "b7", "named"]


@pytest.mark.parametrize(
    "other",
    [
        built(head=HEAD.replace("maxconn 200", "maxconn 300")),
        built(head=HEAD.replace("mode http", "mode tcp")),
        built(head=".if feature(OPENSSL)\n.endif\n" + HEAD),
        built(head=HEAD.replace("crt-list ssl/list.crt-list", "crt ssl/")),
        built(count=3),
    ],
    ids=["global", "defaults", "conditions", "folder of certificates", "few sections"],
)
def test_no_reduction_if_everything_has_to_be_read(other: Generation) -> None:
    assert reduce_generation(built(), other) is None


def test_comparison_ends_when_a_reduction_is_not_worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    before = built()
    text = before.text.replace("from web\n    server", "from web\n    retries 2\n    server")
    after = make_generation(parse_config(text), before.files)
    looked_up: list[tuple[str, str]] = []
    find = Config.find

    def count(config: Config, kind: str, name: str) -> Section | None:
        looked_up.append((kind, name))
        return find(config, kind, name)

    monkeypatch.setattr(Config, "find", count)
    assert reduce_generation(before, after) is None
    assert len(looked_up) < len(after.config.sections) / 2
