import pytest

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, make_file, make_generation
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.operations import (
    AddBackend,
    AddMapEntry,
    AddServer,
    DeleteBackend,
    DeleteMapEntry,
    DeleteServer,
    EnableChecks,
    Plan,
    PublishBackend,
    SetServerState,
    UnpublishBackend,
)
from haptic_trio.haproxy.plan.plan import make_plan

NEWER = capabilities_of((3, 4, 7))
HEAD = """\
defaults http
  mode http
  default-server check
defaults fixed
  balance static-rr
defaults
  mode tcp
frontend f
  mode http
  bind 127.0.0.1:1
  use_backend %[path,map(p.map)]
backend a from http
"""
ADDED = "backend b from http\n  server s 10.0.0.1:80\n"


def plan(before: str, after: str, maps: tuple[str, str] = ("", ""), version: tuple[int, ...] = (3, 4)) -> Plan:
    generations = [
        make_generation(parse_config(text), [make_file(FileKind.MAP, "p.map", entries)])
        for text, entries in zip((HEAD + before, HEAD + after), maps, strict=True)
    ]
    return make_plan(*generations, capabilities=capabilities_of(version))


def test_a_backend_is_complete_before_it_is_published_and_routed_to() -> None:
    assert plan("", ADDED, ("", "/b b\n")).operations == (
        AddBackend("b", "http", "http"),
        AddServer("b", "s", "10.0.0.1:80", ("check",)),
        SetServerState("b", "s", "ready"),
        EnableChecks("b", "s"),
        PublishBackend("b"),
        AddMapEntry("p.map", "/b", "b"),
    )


def test_a_backend_is_out_of_use_before_it_is_deleted() -> None:
    assert plan(ADDED, "", ("/b b\n", "")).operations == (
        DeleteMapEntry("p.map", "/b"),
        UnpublishBackend("b"),
        DeleteServer("b", "s"),
        DeleteBackend("b"),
    )


def test_before_version_3_4_a_backend_reloads() -> None:
    assert plan("", ADDED, version=(3, 2)).reasons == ("backend b added",)
    assert plan(ADDED, "", version=(3, 2)).reasons == ("backend b removed",)


def test_a_backend_without_servers_is_added_whatever_its_algorithm() -> None:
    assert plan("", "backend b from fixed\n").operations == (AddBackend("b", "fixed", "tcp"), PublishBackend("b"))


@pytest.mark.parametrize(
    "section",
    [
        "backend b\n",
        "backend b from http\n  balance leastconn\n",
        "backend b from http\n  server s example.org:80\n",
        "backend b from fixed\n  server s 10.0.0.1:80\n",
        "listen b from http\n  bind 127.0.0.1:2\n",
        "frontend b from http\n  bind 127.0.0.1:2\n",
    ],
)
def test_a_section_that_its_profile_does_not_express_reloads(section: str) -> None:
    assert plan("", section).reloads


def test_a_backend_of_a_profile_that_comes_along_reloads() -> None:
    assert plan("", "defaults new\n  mode http\nbackend b from new\n").reloads


def test_among_conditions_a_backend_reloads() -> None:
    text = ".if 1\n.endif\n" + HEAD
    generations = [make_generation(parse_config(one), ()) for one in (text, text + ADDED)]
    assert make_plan(*generations, capabilities=NEWER).reloads
