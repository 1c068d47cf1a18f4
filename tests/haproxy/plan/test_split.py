"""Runtime changes go ahead of a reload, except those that depend on changes that need the reload."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.config.maps import parse_map_file
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.capabilities import Capabilities, capabilities_of
from haptic_trio.haproxy.plan.operations import (
    AddAclEntry,
    AddBackend,
    AddCrtListEntry,
    AddMapEntry,
    AddServer,
    DeleteAclEntry,
    DeleteMapEntry,
    DeleteServer,
    Operation,
    PublishBackend,
    SetMapEntry,
    SetServerAddress,
    SetServerState,
    StoreCertificate,
)
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.haproxy.plan.split import SplitPlan, is_near, split_plan

LTS, NEWEST = capabilities_of((2, 8)), capabilities_of((3, 4))
MAP, LIST = "maps/p.map", "ssl/l.list"
CA = trustme.CA()


@cache
def pem(name: str, number: int = 1) -> str:
    """Return one of the certificates for a name."""
    return CA.issue_cert(name, common_name=str(number)).private_key_and_cert_chain_pem.bytes().decode()


KINDS = {
    "map": FileKind.MAP,
    "list": FileKind.CRT_LIST,
    "pem": FileKind.CERT,
    "http": FileKind.FILE,
    "txt": FileKind.FILE,
}
BASE: Mapping[str, str] = {
    "defaults": "",
    "frontend": "",
    "app": "  server s1 10.0.0.1:80\n  server s2 10.0.0.2:80\n",
    "more": "",
    MAP: "/a app\n/b app\n",
    LIST: "ssl/a.pem\n",
    "ssl/a.pem": pem("a.test"),
}
RELOADS = {"frontend": "  http-request deny\n"}


def build(*parts: Mapping[str, str]) -> Generation:
    """Return the base with *parts* in place of its own."""
    site = {**BASE, **{key: value for part in parts for key, value in part.items()}}
    text = f"""\
defaults http
  mode http
{site["defaults"]}
frontend f from http
  bind 127.0.0.1:1 ssl crt-list {LIST}
{site["frontend"]}
  use_backend %[path,map({MAP})]
backend app from http
{site["app"]}
{site["more"]}"""
    files: list[AuxFile] = [
        make_file(KINDS[path.rpartition(".")[2]], path, content) for path, content in site.items() if "." in path
    ]
    return make_generation(parse_config(text), files)


def split(desired: Mapping[str, str], capabilities: Capabilities = LTS) -> SplitPlan:
    """Split the change from the base to one with a rule more, and what else is *desired*."""
    return split_plan(build(), build(RELOADS, desired), capabilities)


REASON = "frontend f: directive 'http-request' added"


def test_nothing_goes_ahead_of_the_first_generation() -> None:
    assert split_plan(None, build())[:3] == (None, (), ("unknown generation",))


def test_a_change_without_a_reload_is_not_split() -> None:
    desired = build({MAP: "/a app\n"})
    assert split_plan(build(), desired) == SplitPlan(desired, (DeleteMapEntry(MAP, "/b"),), ())


def test_a_change_that_needs_a_reload_as_a_whole_is_not_split() -> None:
    assert split({})[:3] == (None, (), (REASON,))


@pytest.mark.parametrize(
    ("desired", "operations"),
    [
        ({"app": BASE["app"].replace("0.2", "0.3")}, [SetServerAddress("app", "s2", "10.0.0.3", 80)]),
        ({"app": "  server s1 10.0.0.1:80\n"}, [DeleteServer("app", "s2")]),
        (
            {"app": BASE["app"] + "  server s3 10.0.0.3:80 check\n"},
            [AddServer("app", "s3", "10.0.0.3:80", ("check",)), SetServerState("app", "s3", "ready")],
        ),
        ({MAP: "/a app\n/c app\n"}, [AddMapEntry(MAP, "/c", "app"), DeleteMapEntry(MAP, "/b")]),
        ({"ssl/a.pem": pem("a.test", 2)}, [StoreCertificate("ssl/a.pem", pem("a.test", 2).encode())]),
        (
            {"ssl/b.pem": pem("b.test"), LIST: "ssl/a.pem\nssl/b.pem\n"},
            [StoreCertificate("ssl/b.pem", pem("b.test").encode(), is_new=True), AddCrtListEntry(LIST, "ssl/b.pem")],
        ),
    ],
)
def test_runtime_changes_go_ahead_of_the_reload(desired: Mapping[str, str], operations: Sequence[Operation]) -> None:
    found = split(desired)
    assert found.effective == build(desired)
    assert list(found.operations)[: len(operations)] == operations
    assert found.reasons == (REASON,)


@pytest.mark.parametrize(
    "frame",
    ["  balance leastconn\n", "  timeout server 9s\n", "  http-request deny\n"],
    ids=["balance", "timeout", "rule"],
)
def test_servers_go_ahead_of_other_changes_of_their_backend(frame: str) -> None:
    servers = "  server s1 10.0.0.9:80\n"
    found = split({"app": frame + servers})
    assert found.effective is not None
    assert "".join(found.effective.text.split()) == "".join(build({"app": servers}).text.split())
    assert found.operations == (SetServerAddress("app", "s1", "10.0.0.9", 80), DeleteServer("app", "s2"))
    assert len(found.reasons) == 2


@pytest.mark.parametrize(
    "desired",
    [
        {"app": "  mode tcp\n  server s1 10.0.0.9:80\n  server s2 10.0.0.2:80\n"},
        {"app": "  timeout server 9s\n" + BASE["app"].replace(":80", ":443 ssl verify none")},
        {"app": "  default-server check\n" + BASE["app"].replace(":80", ":81")},
        {"defaults": "  default-server check\n", "app": BASE["app"].replace(":80", ":81")},
        {"app": "  server s1 10.0.0.1:80\n  timeout server 9s\n  default-server check\n  server s2 10.0.0.9:80\n"},
        {
            "app": BASE["app"] + "  server s3 10.0.0.3:80 ssl ca-file ssl/new.pem verify required\n",
            "ssl/new.pem": pem("n"),
        },
        {"app": BASE["app"].replace("10.0.0.2", "example.org")},
        {"more": "backend new from http\n  server s1 10.0.0.1:80\n"},
    ],
)
def test_servers_wait_with_changes_of_their_connection_settings(desired: Mapping[str, str]) -> None:
    found = split(desired)
    assert (found.effective, found.operations) == (None, ())
    assert len(found.reasons) > 1


def test_a_server_that_a_rule_names_waits_with_the_rule() -> None:
    running = build({"app": "  use-server s2 if { path /x }\n" + BASE["app"]})
    desired = build({"app": "  server s1 10.0.0.9:80\n"})
    assert split_plan(running, desired).operations == ()


ROUTES = "/a app\n/c app\n/n new\n/b new\n"
NEW = "backend new from http\n  server s1 10.0.0.1:80\n"


def test_a_map_entry_waits_for_its_backend() -> None:
    found = split({"more": NEW, MAP: ROUTES})
    assert found.operations == (AddMapEntry(MAP, "/c", "app"),)
    assert found.effective is not None
    assert parse_map_file(found.effective.files[MAP].content) == (("/a", "app"), ("/c", "app"), ("/b", "app"))


def test_keys_of_a_list_go_ahead_unless_the_list_is_used_otherwise_then() -> None:
    use = "  http-request deny if { src -f lists/x.txt }\n"
    running = build({"frontend": use, "lists/x.txt": "10.0.0.1\n"})
    changed = {"lists/x.txt": "10.0.0.2\n"}
    found = split_plan(running, build({"frontend": use + RELOADS["frontend"], **changed}))
    assert found.operations == (AddAclEntry("lists/x.txt", "10.0.0.2"), DeleteAclEntry("lists/x.txt", "10.0.0.1"))
    assert found.effective == build({"frontend": use, **changed})
    assert found.reasons == (REASON,)
    for other in ("", use.replace("src", "dst"), use + use.replace("deny", "allow")):
        found = split_plan(running, build({"frontend": other, "app": "  server s1 10.0.0.1:80\n", **changed}))
        assert found.effective is not None
        assert found.effective.files["lists/x.txt"] == running.files["lists/x.txt"]


def test_a_backend_goes_ahead_with_its_routes_where_the_process_can_add_it() -> None:
    found = split({"more": NEW, MAP: ROUTES}, NEWEST)
    assert found.effective == build({"more": NEW, MAP: ROUTES})
    assert found.operations == (
        AddBackend("new", "http", "http"),
        AddServer("new", "s1", "10.0.0.1:80"),
        SetServerState("new", "s1", "ready"),
        PublishBackend("new"),
        AddMapEntry(MAP, "/c", "app"),
        AddMapEntry(MAP, "/n", "new"),
        SetMapEntry(MAP, "/b", "new"),
    )


def test_a_backend_is_removed_after_the_rules_that_name_it() -> None:
    running = build({"more": NEW, "frontend": "  default_backend new\n"})
    found = split_plan(running, build({MAP: "/a app\n"}), NEWEST)
    assert found.operations == (DeleteMapEntry(MAP, "/b"),)


def test_a_map_with_a_changed_use_waits() -> None:
    desired = {"frontend": f"  http-request set-var(txn.x) path,map_beg({MAP})\n", MAP: "/a app\n"}
    assert split_plan(build(), build(desired)).operations == ()


def test_a_map_whose_order_counts_waits_as_a_whole() -> None:
    rule = f"  http-request set-var(txn.x) path,map_reg({MAP})\n"
    running, desired = build({"frontend": rule}), build({"frontend": rule, "more": NEW, MAP: ROUTES})
    assert split_plan(running, desired).operations == ()


def test_a_list_waits_for_the_certificate_that_waits() -> None:
    long = pem("b.test") + "# " + "x" * 20_000 + "\n"
    found = split({"ssl/b.pem": long, LIST: "ssl/a.pem\nssl/b.pem\n", MAP: "/a app\n"})
    assert found.operations == (DeleteMapEntry(MAP, "/b"),)
    assert found.effective is not None
    assert found.effective.files[LIST].content == b"ssl/a.pem\n"


def test_nothing_goes_ahead_if_sections_depend_on_conditions() -> None:
    desired = build(RELOADS, {"more": ".if 1\nbackend other\n.endif\n", MAP: "/a app\n"})
    assert split_plan(build(), desired).operations == ()


def test_conditions_within_another_section_hold_nothing_back() -> None:
    desired = build(RELOADS, {"frontend": ".if version_atleast(3.0)\n.endif\n", MAP: "/a app\n"})
    assert split_plan(build(), desired).operations == (DeleteMapEntry(MAP, "/b"),)


def test_servers_among_conditions_do_not_go_ahead() -> None:
    desired = build(RELOADS, {"app": ".if 1\n.endif\n  server s1 10.0.0.9:80\n  server s2 10.0.0.2:80\n"})
    assert split_plan(build(), desired).operations == ()


servers = st.dictionaries(
    st.sampled_from(["s1", "s2", "s3"]),
    st.tuples(st.integers(1, 3), st.sampled_from(["", "weight 3", "check", "disabled", "maxconn 5"])),
    max_size=3,
).map(lambda found: "".join(f"  server {name} 10.0.0.{number}:80 {words}\n" for name, (number, words) in found.items()))
frames = st.sampled_from(["", "  balance leastconn\n", "  timeout server 9s\n", "  balance source\n"])
backends = st.none() | st.tuples(frames, servers)
sites = st.fixed_dictionaries(
    {
        "defaults": st.sampled_from(["", "  timeout client 9s\n", "  default-server maxconn 9\n"]),
        "frontend": st.sampled_from(["", "  http-request deny\n"]),
        "app": st.tuples(frames, servers).map("".join),
        "b1": backends,
        "b2": backends,
        "routes": st.dictionaries(st.sampled_from(["/1", "/2", "/3"]), st.sampled_from(["app", "b1", "b2"])),
        "certificates": st.dictionaries(st.sampled_from(["b.test", "c.test"]), st.integers(1, 2)),
        "default": st.integers(1, 2),
    }
)


def build_site(site: Mapping[str, Any]) -> Generation:
    """Return the generation of a random site."""
    more = "".join(
        f"backend {name} from http\n{''.join(site[name])}" for name in ("b1", "b2") if site[name] is not None
    )
    chosen = site["certificates"]
    return build(
        {
            "defaults": site["defaults"],
            "frontend": site["frontend"],
            "app": site["app"],
            "more": more,
            MAP: "".join(f"{key} {value}\n" for key, value in site["routes"].items()),
            LIST: "ssl/a.pem\n" + "".join(f"ssl/{name}.pem\n" for name in chosen),
            "ssl/a.pem": pem("a.test", site["default"]),
            **{f"ssl/{name}.pem": pem(name, number) for name, number in chosen.items()},
        }
    )


def names(generation: Generation) -> set[str]:
    return {section.name for section in generation.config.all("backend")}


@given(sites, sites, st.sampled_from([LTS, NEWEST]))
def test_the_effective_generation_is_between_running_and_desired(
    before: Mapping[str, Any], after: Mapping[str, Any], capabilities: Capabilities
) -> None:
    running, desired = build_site(before), build_site(after)
    found = split_plan(running, desired, capabilities)
    whole = make_plan(running, desired, capabilities=capabilities)
    if found.effective is None:
        assert found.operations == ()
        assert found.reasons == whole.reasons
        return
    # It can be had without a reload, and it is a configuration of its own.
    if found.reasons:
        ahead = make_plan(running, found.effective, capabilities=capabilities).operations
        assert sorted(map(repr, ahead)) == sorted(map(repr, found.operations))
    assert parse_config(found.effective.text) == found.effective.config
    # What is left needs the reload, all of it.
    assert make_plan(found.effective, desired, capabilities=capabilities).reasons == found.reasons
    again = split_plan(found.effective, desired, capabilities)
    assert (again.operations, again.reasons) == ((), found.reasons)
    # A new route leads nowhere but to what is there.
    old, new = (dict(parse_map_file(one.files[MAP].content)) for one in (running, found.effective))
    fresh = {value for key, value in new.items() if old.get(key) != value}
    assert fresh & names(desired) <= names(found.effective)


def many_servers(backend: str, first: int, count: int) -> str:
    lines = (f"  server s{number} 10.{first}.{number // 250}.{number % 250}:80\n" for number in range(count))
    return f"backend {backend}\n  mode http\n" + "".join(lines)


def test_much_changed_text_is_not_near() -> None:
    def of(servers: int, entries: int, first: int) -> Generation:
        text = "frontend f\n  use_backend %[path,map(maps/a.map)]\n" + many_servers("app", first, servers)
        content = "".join(f"/{first}/{number} app\n" for number in range(entries))
        return make_generation(parse_config(text), [make_file(FileKind.MAP, "maps/a.map", content)])

    assert is_near(of(100, 100, 1), of(100, 100, 2))
    assert not is_near(of(3_000, 100, 1), of(3_000, 100, 2))
    assert not is_near(of(100, 10_000, 1), of(100, 10_000, 2))


def test_servers_go_ahead_however_many_backends_get_another_line() -> None:
    count, room, moved = 100, 5, {40, 80}

    def site(line: str, moved: set[int]) -> Generation:
        backends = (
            f"backend b{number}\n{line}  server s 10.0.0.{2 if number in moved else 1}:80\n" for number in range(count)
        )
        return make_generation(parse_config("".join(backends), source="haproxy.cfg"), ())

    running, desired = site("", set()), site("  retries 3\n", moved)
    split = split_plan(running, desired, LTS, room)
    assert split.effective == site("", moved)
    assert len(split.operations) == len(moved)
    assert split.reasons
    assert not split.is_partial
