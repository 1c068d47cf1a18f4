"""Files are stored in a Data Plane API under names that no version changes, before the files that refer to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.dataplane.dataplaneapi.storage import Place, Store, StoredFile, check_place, place_files, place_of
from haptic_trio.haproxy.model import FileKind, make_file
from tests.support.dataplaneapi.builders import certificate, crt_list, general, map_file
from tests.support.dataplaneapi.state import clean_name

KEY = b"-----BEGIN PRIVATE KEY-----\n"


def test_files_are_written_before_the_files_that_refer_to_them() -> None:
    files = (crt_list("list.txt", "a.pem"), map_file("host.map", "a b\n"), certificate("a.pem", KEY), general("x", ""))

    placed, problems = place_files(files)

    assert problems == []
    assert [place.store for place in placed] == [Store.CERTIFICATES, Store.GENERAL, Store.MAPS, Store.CRT_LISTS]


@pytest.mark.parametrize("name", [".map", "-a.map", "a", "a b.map", "..", "", "ä.map"])
def test_names_that_cannot_be_changed_and_are_not_kept_are_rejected(name: str) -> None:
    placed, problems = place_files([make_file(FileKind.MAP, f"/maps/{name}", "")])

    assert placed == {}
    assert len(problems) == 1


NAMES = st.text("ab_-.:=ä /", min_size=1, max_size=12).filter(lambda name: "/" not in name)


@given(st.sampled_from(FileKind), st.sets(NAMES, max_size=6))
def test_names_in_a_storage_are_such_as_no_version_changes(kind: FileKind, names: set[str]) -> None:
    content = "-----BEGIN PRIVATE KEY-----\n"
    files = [make_file(kind, f"dir/{name}", content) for name in names]

    placed, problems = place_files(files)

    assert problems == []
    assert {file.path for file in placed.values()} == {file.path for file in files}
    for place in placed:
        assert clean_name(place.store, place.name) == place.name
        assert place.store is not Store.CRT_LISTS or place.name.endswith(".txt")


@pytest.mark.parametrize(
    ("kind", "name", "kept"),
    [
        (FileKind.MAP, "host.map", True),
        (FileKind.MAP, "host.name.map", False),
        (FileKind.CERT, "default_web.pem", True),
        (FileKind.CERT, "default_web.crt", False),
        (FileKind.CRT_LIST, "https.list", False),
        (FileKind.CRT_LIST, "https.txt", True),
        (FileKind.FILE, "503.http", True),
        (FileKind.FILE, "page", True),
        (FileKind.FILE, "my page.http", False),
    ],
)
def test_usual_names_are_kept(kind: FileKind, name: str, kept: bool) -> None:
    assert (place_of(make_file(kind, f"dir/{name}", "-----BEGIN PRIVATE KEY-----")).name == name) is kept


def test_authorities_are_kept_apart_from_certificates_with_keys() -> None:
    assert place_of(make_file(FileKind.CERT, "ssl/ca.pem", "-----BEGIN CERTIFICATE-----")).store is Store.GENERAL


@given(st.sampled_from([FileKind.MAP, FileKind.CRT_LIST, FileKind.FILE]), st.text("a\n", max_size=4))
def test_content_of_a_file_comes_back_as_it_was_and_is_never_nothing(kind: FileKind, content: str) -> None:
    file = make_file(kind, "dir/x", content)

    sent = Paths({}).send_file(file)

    assert Paths({}).take_file(kind, sent) == file.content
    assert sent or kind is FileKind.FILE


@pytest.mark.parametrize(
    ("path", "stored", "is_found"),
    [
        ("/etc/haproxy/maps/a.map", "/etc/haproxy/maps/a.map", True),
        ("/etc/haproxy/maps/a.map", "/var/maps/a.map", False),
        ("maps/a.map", "/etc/haproxy/maps/a.map", True),
        ("maps/a.map", "/etc/haproxy/mymaps/a.map", True),
        ("a.map", "/etc/haproxy/maps/a.map", True),
        ("maps/a.map", "", True),
    ],
)
def test_place_of_a_file_agrees_with_the_path_in_the_configuration(path: str, stored: str, is_found: bool) -> None:
    place = Place(Store.MAPS, "a.map")

    assert (check_place(place, path, StoredFile("a.map", stored)) == "") is is_found
    assert check_place(place, path, StoredFile("a_map.map", stored))


WORDS = st.lists(
    st.sampled_from(["maps/a.map", "ssl/b.pem", "/maps/a.map", "xmaps/a.map", "maps/a.map2", "map(maps/a.map)"])
)


@given(WORDS)
def test_paths_are_turned_into_those_of_the_api_and_back(words: list[str]) -> None:
    paths = Paths({"maps/a.map": "/etc/api/maps/a.map", "ssl/b.pem": "/etc/api/ssl/b.pem", "/abs": "/abs"})
    text = " ".join(words)

    sent = paths.send(text)

    assert paths.take(sent) == text
    expected = {"maps/a.map": "/etc/api/maps/a.map", "ssl/b.pem": "/etc/api/ssl/b.pem"}
    expected["map(maps/a.map)"] = "map(/etc/api/maps/a.map)"
    assert sent == " ".join(expected.get(word, word) for word in words)


def test_only_crt_lists_name_other_files() -> None:
    paths = Paths({"ssl/b.pem": "/etc/api/ssl/b.pem"})

    for kind, content in ((FileKind.CRT_LIST, b"/etc/api/ssl/b.pem\n"), (FileKind.FILE, b"ssl/b.pem\n")):
        file = make_file(kind, "ssl/x", "ssl/b.pem\n")
        assert paths.send_file(file) == content
        assert paths.take_file(kind, content) == file.content
