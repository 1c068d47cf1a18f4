"""A rollback keeps the servers of a rejected configuration, and undoes its other data."""

from haptic_trio.chunked import Paged, Piece
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.kept_servers import keep_servers, move_servers, undo_files
from haptic_trio.templating.values.subjects import Origin, Subject

HEAD = """\
defaults http
  mode http
frontend web from http
  bind :8080
  use_backend %[base,map_beg(maps/path.map)]
"""


def site(*servers: str, other: str = "", line: str = "", paths: str = "a b\n") -> Generation:
    """Return a generation with a backend of *servers*, and more."""
    lines = "".join(f"  server {server}\n" for server in servers)
    text = f"{HEAD}backend b from http\n{line}{lines}{other}"
    return make_generation(parse_config(text), (make_file(FileKind.MAP, "maps/path.map", paths),))


VALID = site("s1 10.0.0.1:80", "s2 10.0.0.2:80 weight 3")


def test_present_servers_stay_and_other_data_is_undone() -> None:
    rejected = site("s1 10.0.0.9:80", "s3 10.0.0.3:80", other="backend c from http\n", paths="c d\n")

    present, still, _ = keep_servers(VALID, rejected)

    assert present == site("s1 10.0.0.9:80", "s3 10.0.0.3:80")
    # Neither is where it was.
    assert still == site()


def test_settings_of_servers_that_are_there_may_be_undone() -> None:
    present, still, _ = keep_servers(VALID, site("s1 10.0.0.9:80", "s2 10.0.0.2:80 weight 5"))

    assert present == site("s1 10.0.0.9:80", "s2 10.0.0.2:80 weight 5")
    assert still == site("s2 10.0.0.2:80 weight 3")


def test_server_that_a_rule_names_stays() -> None:
    valid = site("s1 10.0.0.1:80", line="  use-server s1 if { path /a }\n")

    assert keep_servers(valid, site(line="  use-server s1 if { path /a }\n")) == (valid, valid, valid)


def lines_of(**lines: str) -> Generation:
    """Return a generation with a map whose lines are of the Ingresses of these names."""
    pieces = Paged.of(
        Piece(text, Origin("paths", Subject("Ingress", "default", name, version), "path.map", 1))
        for name, (version, text) in ((name, text.split(":")) for name, text in lines.items())
    )
    return make_generation(site("s1 10.0.0.1:80").config, (make_file(FileKind.MAP, "maps/path.map", pieces),))


def content_of(generation: Generation) -> bytes:
    return generation.files["maps/path.map"].content


def test_no_entry_of_a_deleted_object_comes_back() -> None:
    valid = lines_of(web="1:web one\n", gone="1:gone one\n", shop="1:shop one\n")
    rejected = lines_of(web="2:web two\n", shop="1:shop one\n", bad="1:bad one\n")

    # The entry of `bad` may be the cause, and that of `web` as well.
    assert {content_of(kept) for kept in keep_servers(valid, rejected)} == {b"web one\nshop one\n"}


def test_object_that_is_still_there_keeps_all_of_its_entries() -> None:
    valid = lines_of(web="1:web one\nother one\n")
    assert {content_of(kept) for kept in keep_servers(valid, lines_of(web="2:web one\n"))} == {content_of(valid)}


def test_only_the_files_that_the_check_names_are_undone() -> None:
    def made(path: str, new: str = "", **lines: str) -> Generation:
        files = [*lines_of(**lines).files.values(), make_file(FileKind.MAP, "maps/other.map", "x y\n")]
        if new:
            files.append(make_file(FileKind.MAP, new, "x y\n"))
        return make_generation(site(path).config, files)

    valid = made("s1 10.0.0.1:80", web="1:web one\n", gone="1:gone one\n")
    part = made("s1 10.0.0.2:80", "maps/new.map", web="2:web two\n", bad="1:bad one\n")

    kept = undo_files(valid, part, "check: haproxy.cfg:7: error in /state/maps/path.map: no memory")
    assert kept == made("s1 10.0.0.2:80", "maps/new.map", web="1:web one\n")
    assert "maps/new.map" not in undo_files(valid, part, "maps/new.map:1: bad entry").files
    assert undo_files(valid, part, "maps/other.map: error") is part


def test_conditional_sections_are_left_alone() -> None:
    valid = site("s1 10.0.0.1:80", other=".if version_atleast(2.8)\nbackend d from http\n.endif\n")

    assert keep_servers(valid, VALID) == (valid,)


def test_servers_that_moved_are_taken_over_into_other_settings() -> None:
    before = site("s1 10.0.0.1:80", "s2 10.0.0.2:80", line="  balance leastconn\n")
    after = site("s1 10.0.0.9:80", "s2 10.0.0.2:80", other="backend c from http\n", line="  balance leastconn\n")

    moved = move_servers(site("s1 10.0.0.1:80", "s2 10.0.0.2:80", paths="c d\n"), before, after)

    assert moved == site("s1 10.0.0.9:80", "s2 10.0.0.2:80", paths="c d\n")


def test_servers_of_an_empty_backend_are_taken_over() -> None:
    assert move_servers(site(), site(), site("s1 10.0.0.1:80 weight 3")) == site("s1 10.0.0.1:80 weight 3")


def test_nothing_else_is_taken_over() -> None:
    running = site("s1 10.0.0.1:80")

    assert move_servers(running, VALID, site("s1 10.0.0.1:80", "s2 10.0.0.2:80 weight 3", paths="e f\n")) is running
    assert move_servers(site(other="backend c from http\n"), VALID, VALID) == site(other="backend c from http\n")
    branched = site(other=".if version_atleast(2.8)\nbackend d from http\n.endif\n")
    assert move_servers(branched, VALID, running) is branched
