from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.config.maps import MapUse, diff_maps, find_map_use, form_of, parse_list_file, parse_map_file
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.haproxy.runtime.replies import parse_list, parse_map
from haptic_trio.haproxy.text_lines import Lines

Ask = Callable[[str], str]

MAP = "maps/host.map"

CONTENT = b"""# a comment
 # not a comment
plain value
\ttabs\tand  blanks \t
several   words of  value
key-only
quoted 'it' "s" \\ a;b # c

   \t
twice 1
twice 2
\xc3\xa9 \xff\xfe
carriage return\r
vt\x0bkey v\x0c
last line"""

FRONTEND = "frontend f\n  mode http\n  http-request set-var(txn.x) {}\n"


def _generation(text: str) -> Generation:
    return make_generation(parse_config(text), ())


def test_entries_keep_their_order_and_lose_blanks_around_key_and_value() -> None:
    assert parse_map_file(b"# c\n\nb  two words \n\ta 1\nb 3\n") == (("b", "two words"), ("a", "1"), ("b", "3"))


@pytest.mark.haproxy
def test_real_haproxy_reads_the_same_entries(start_haproxy: Callable[..., Ask]) -> None:
    ask = start_haproxy(FRONTEND.format(f"str(x),map({MAP})") + "  bind unix@web\n", {MAP: CONTENT})
    assert parse_map(ask(f"show map {MAP}")) == parse_map_file(CONTENT)


@given(st.binary())
def test_any_bytes_are_read(content: bytes) -> None:
    assert all(key == key.strip(" \t") and value == value.strip(" \t") for key, value in parse_map_file(content))


@given(st.text(st.sampled_from("# \tab\n\x00é"), max_size=30))
def test_the_fast_way_reads_as_the_careful_one_does(text: str) -> None:
    with_odd_space = parse_map_file(f"{text}\nodd\vkey value\n".encode())
    assert with_odd_space == (*parse_map_file(text.encode()), ("odd\vkey", "value"))


@pytest.mark.parametrize(
    ("expression", "use"),
    [
        ("req.hdr(host),map(maps/host.map)", MapUse.UNORDERED),
        ("req.hdr(host),lower,map_str(maps/host.map,default)", MapUse.UNORDERED),
        ("path,map_beg(maps/host.map,/)", MapUse.UNORDERED),
        ("src,map_ip_int(maps/host.map,0)", MapUse.UNORDERED),
        ("path,map_reg(maps/host.map)", MapUse.ORDERED),
        ("path,map_regm(maps/host.map)", MapUse.ORDERED),
        ("path,map_sub(maps/host.map,x)", MapUse.ORDERED),
        ("path,map_end(maps/host.map,x)", MapUse.ORDERED),
        ("path,map(maps/host.map),map_dir(maps/host.map)", MapUse.ORDERED),
        ("'path,map(maps/host.map)'", MapUse.UNORDERED),
        ("path,map('maps/'host.map)", MapUse.UNORDERED),
        ("path,map('maps/'host.map) # maps/host.map", MapUse.UNORDERED),
        ("path,map(maps/other.map)", MapUse.NONE),
        ("path,map(maps/host.map.old)", MapUse.NONE),
        ("path,map(/etc/maps/host.map)", MapUse.NONE),
        ("path,concat(maps/host.map)", MapUse.OTHER),
        ("path # maps/host.map", MapUse.NONE),
        ("str(x) if { src -f maps/host.map }", MapUse.LIST),
        ("str(x) unless TRUE !{ hdr(x) -i -n -m beg -f a.txt -f maps/host.map -f b.txt c } { path / }", MapUse.LIST),
        ("str(x) if { src -u 7 -f maps/host.map }", MapUse.OTHER),
        ("str(x) if { path / -f maps/host.map }", MapUse.OTHER),
        ("str(x) if { path -i -- -f maps/host.map }", MapUse.OTHER),
        ("str(x) if { path -f opt@maps/host.map }", MapUse.OTHER),
        ("str(x) if { path -f maps/host.map } { path -M -f other.map }", MapUse.OTHER),
        ("str(x) if { src -f maps/host.map } { src,map(maps/host.map) -m found }", MapUse.OTHER),
        ("str(x) if { src,map(maps/host.map) -m found }", MapUse.UNORDERED),
        ("str(x) if { path -m str -M -f maps/host.map }", MapUse.ORDERED),
        ('"${X}",map(maps/host.map)', MapUse.OTHER),
    ],
)
def test_the_use_of_a_map_decides_whether_the_order_of_its_keys_counts(expression: str, use: MapUse) -> None:
    assert find_map_use(_generation(FRONTEND.format(expression)), MAP) is use


def test_a_list_is_known_by_the_line_that_names_an_acl() -> None:
    text = "frontend f\n  mode http\n  acl {}\n"
    for line, use in {
        "a src -f maps/host.map": MapUse.LIST,
        "a hdr(x) -i -m sub -f other.txt -f maps/host.map": MapUse.LIST,
        "a src 10.0.0.1 -f maps/host.map": MapUse.OTHER,
        "a path -M -f maps/host.map": MapUse.ORDERED,
    }.items():
        assert find_map_use(_generation(text.format(line)), MAP) is use, line


def test_a_list_that_rules_change_is_not_a_list_alone() -> None:
    text = "frontend f\n  mode http\n  acl a src -f maps/host.map\n  http-request add-acl(maps/host.map) %[src]\n"
    assert find_map_use(_generation(text), MAP) is MapUse.OTHER


@pytest.mark.haproxy
def test_real_haproxy_reads_the_same_keys_of_a_list(start_haproxy: Callable[..., Ask]) -> None:
    content = CONTENT.replace(b"key-only", b"key\rrest")
    ask = start_haproxy(FRONTEND.format(f"str(x) if {{ path -f {MAP} }}") + "  bind unix@web\n", {MAP: content})
    assert parse_list(ask(f"show acl {MAP}")) == tuple(key for key, _ in parse_list_file(content))


@given(st.binary(), st.binary())
def test_what_a_file_is_read_as_does_not_carry_over(one: bytes, other: bytes) -> None:
    before, after = Lines.of(b"a 1\na 2\n" + one), Lines.of(b"a 1\na 3\n" + other)
    as_list = diff_maps(before, after, form_of(MapUse.LIST))
    assert not diff_maps(before, after, form_of(MapUse.UNORDERED)).unique
    assert diff_maps(Lines.of(before.content), Lines.of(after.content), form_of(MapUse.LIST)) == as_list


def test_rules_that_change_a_map_look_nothing_up() -> None:
    text = "frontend f\n  mode http\n  http-request set-map(maps/host.map) %[src] x\n"
    assert find_map_use(_generation(text), MAP) is MapUse.UNORDERED
    with_lookup = text + "  use_backend %[path,map_reg(maps/host.map)]\n"
    assert find_map_use(_generation(with_lookup), MAP) is MapUse.ORDERED
