"""For random sequences of changes: a process that took them at runtime, and one started on the last, are the same."""

import csv
import hashlib
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from haptic_trio.dataplane.binary import HaproxyVersion
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.capabilities import read_capabilities
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.haproxy.runtime.replies import parse_list, parse_map
from tests.haproxy.carrying_out import carry_out
from tests.haproxy.conftest import running_haproxy

Ask = Callable[[str], str]

NAMES = ("a.test", "b.test", "c.test", "d.test")
HEAD = """\
defaults http
  mode http
  balance roundrobin
  default-server maxconn 50
  timeout connect 1s
  timeout client 1s
  timeout server 1s
frontend f from http
  bind {directory}/web ssl crt-list ssl/l.list
  acl known src -f lists/a.txt
  http-request deny if known {{ path -i -m beg -f lists/p.txt }}
  http-request deny if {{ path -m sub -f lists/p.txt -f lists/a.txt /x }}
  use_backend %[path,map(maps/p.map)]
"""
MAP, LIST = "maps/p.map", "ssl/l.list"
ADDRESSES, PATHS = "lists/a.txt", "lists/p.txt"


@cache
def pem(name: str, number: int) -> bytes:
    """Return one of the certificates for a name."""
    return CA.issue_cert(name, common_name=f"{number}").private_key_and_cert_chain_pem.bytes()


CA = trustme.CA()

options = st.sampled_from(
    ["", "weight 3", "weight 9 disabled", "disabled", "maxconn 7", "maxconn 9 check inter 1h", "check inter 1h"]
)
servers = st.dictionaries(
    st.sampled_from(["s1", "s2", "s3", "s4"]), st.tuples(st.integers(1, 9), options), max_size=4
).map(lambda found: [f"  server {name} 127.0.0.{number}:9 {words}\n" for name, (number, words) in found.items()])
hashed = st.lists(st.integers(1, 9), max_size=3).map(
    lambda numbers: [f"  server s{place} 127.0.0.{number}:9\n" for place, number in enumerate(numbers, 1)]
)
certificates = st.dictionaries(
    st.sampled_from(NAMES[1:]), st.tuples(st.integers(1, 2), st.sampled_from(["", " [alpn h2] x.{0}", " *.{0}"]))
)
addresses = st.lists(st.sampled_from(["10.0.0.1", "10.0.0.0/8", "10.0.0.0/255.0.0.0", " ::1", "# no", ""]), max_size=5)
awkward = st.text(" \t#;\\<>'\"/aé", max_size=4)
paths = st.lists(awkward, max_size=4) | st.integers(95, 300).map(lambda count: [f"/{one}" for one in range(count)])


entries = st.dictionaries(st.sampled_from(["/1", "/2", "/3"]), st.sampled_from(["app", "hashed", "b1"]))


PARTS = {
    "app": servers,
    "hashed": hashed,
    "b1": st.none() | servers,
    "b2": st.none() | servers,
    "map": entries,
    "addresses": addresses,
    "paths": paths,
    "certificates": certificates,
    "default": st.integers(1, 2),
}
sites = st.fixed_dictionaries(PARTS)
changes = st.one_of(*(st.tuples(st.just(name), values) for name, values in PARTS.items()))


def build(site: Mapping[str, Any], directory: Path) -> Generation:
    """Return the generation of *site* for a process in *directory*."""
    text = HEAD.format(directory=f"unix@{directory}")
    text += "backend app from http\n" + "".join(site["app"])
    text += "backend hashed from http\n  balance source\n  hash-type consistent\n" + "".join(site["hashed"])
    for name in ("b1", "b2"):
        if site[name] is not None:
            text += f"backend {name} from http\n" + "".join(site[name])
    chosen = site["certificates"]
    lines = ["ssl/a.test.pem"] + [f"ssl/{name}.pem" + words.format(name) for name, (_, words) in chosen.items()]
    files = [
        make_file(FileKind.MAP, MAP, "".join(f"{key} {value}\n" for key, value in site["map"].items())),
        make_file(FileKind.FILE, ADDRESSES, "".join(f"{line}\n" for line in site["addresses"])),
        make_file(FileKind.FILE, PATHS, "".join(f"{line}\n" for line in site["paths"])),
        make_file(FileKind.CRT_LIST, LIST, "".join(f"{line}\n" for line in lines)),
        make_file(FileKind.CERT, "ssl/a.test.pem", pem("a.test", site["default"])),
        *(make_file(FileKind.CERT, f"ssl/{name}.pem", pem(name, number)) for name, (number, _) in chosen.items()),
    ]
    return make_generation(parse_config(text), files)


def state_of(ask: Ask, web: Path) -> dict[str, object]:
    """Return the state of a process and its responses, as clients see them."""
    rows = list(csv.DictReader(ask("show stat").removeprefix("# ").splitlines()))
    ids = [line.split()[1:6] for line in ask("show servers state hashed").splitlines()[2:] if line]
    return {
        "ids": ids,
        "servers": {
            (row["pxname"], row["svname"]): (row["addr"], _weight(row), row["slim"], _status(row["status"]))
            for row in rows
            if row["svname"] not in {"FRONTEND", "BACKEND"}
        },
        "backends": {row["pxname"] for row in rows if row["svname"] == "BACKEND"},
        "lists": [sorted(parse_list(ask(f"show acl {path}"))) for path in (ADDRESSES, PATHS)],
        "matches": [
            re.findall("match=[a-z]+", ask(f"get acl {path} {sample}"))
            for path, samples in ((ADDRESSES, ("10.0.0.1", "10.9.9.9", "::1")), (PATHS, ("/", "A", "x/199x")))
            for sample in samples
        ],
        "map": sorted(parse_map(ask(f"show map {MAP}"))),
        "certificates": {
            name: _served(web, name)
            for name in (*NAMES, *(f"x.{name}" for name in NAMES), *(f"y.{name}" for name in NAMES), "other.test")
        },
    }


def _weight(row: Mapping[str, str]) -> str:
    # A server in maintenance has none that counts: it gets its own when it is made ready.
    return "" if row["status"] == "MAINT" else row["weight"]


def _status(status: str) -> str:
    return status if status in {"MAINT", "no check"} else "checked"


def _served(web: Path, name: str) -> str:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.socket(socket.AF_UNIX) as plain:
        plain.connect(str(web))
        with context.wrap_socket(plain, server_hostname=name) as connection:
            return hashlib.sha256(connection.getpeercert(binary_form=True) or b"").hexdigest()


def start(stack: ExitStack, binary: Path, site: Mapping[str, Any]) -> tuple[Ask, Path]:
    """Start a process on *site*; it ends with *stack*."""

    def write(directory: Path) -> tuple[str, dict[str, bytes]]:
        generation = build(site, directory)
        return generation.text, {file.path: file.content for file in generation.files.values()}

    return stack.enter_context(running_haproxy(binary, write))


@pytest.mark.haproxy
@settings(
    max_examples=max(settings().max_examples // 10, 1),
    suppress_health_check=list(HealthCheck),
    # Shrinking would start a thousand processes; what was found is short enough.
    phases=[phase for phase in Phase if phase is not Phase.shrink],
)
@given(sites, st.lists(changes, min_size=3, max_size=12))
def test_a_process_that_took_changes_is_like_one_that_was_started_on_the_last(
    haproxy_binary: Path,
    haproxy_version: HaproxyVersion,
    site: Mapping[str, Any],
    changes: Sequence[tuple[str, Any]],
) -> None:
    with ExitStack() as stack:
        ask, directory = start(stack, haproxy_binary, site)
        capabilities = read_capabilities(haproxy_version.number, ask("help"), ask("add server help"))
        for name, value in changes:
            desired = {**site, name: value}
            plan = make_plan(build(site, directory), build(desired, directory), capabilities=capabilities)
            # What would reload is not made: after it there would be nothing to compare.
            if not plan.reloads:
                assert carry_out(ask, plan.operations) == ()
                site = desired
        fresh, other = start(stack, haproxy_binary, site)
        assert state_of(ask, directory / "web") == state_of(fresh, other / "web")
