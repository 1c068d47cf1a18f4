"""The namespaces whose changes need a reload are known where sections or files name them, and only there."""

from collections.abc import Iterable

import pytest

from haptic_trio.chunked import Paged, Piece
from haptic_trio.haproxy.causes import UNKNOWN, namespace_of_change, namespaces_named
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import AuxFile, FileChange, FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.plan import TOO_MANY, make_plan
from haptic_trio.haproxy.plan.split import split_plan
from haptic_trio.templating.values.subjects import Origin, Subject

MAP = "maps/path.map"


def built(text: str, *files: AuxFile) -> Generation:
    return make_generation(parse_config(text), files)


def lines_of(*lines: tuple[str, str], kind: FileKind = FileKind.MAP, path: str = MAP) -> AuxFile:
    """Return a file with *lines*, each with the namespace whose object has made it."""
    return make_file(kind, path, Paged.of(_pieces(lines)))


def _pieces(lines: Iterable[tuple[str, str]]) -> Iterable[Piece]:
    for text, namespace in lines:
        subject = Subject(kind="Ingress", namespace=namespace, name="web")
        yield Piece(f"{text}\n", Origin("f", subject, "t", 1) if namespace else None)


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [
        ("shop_web_80", {"shop"}),
        ("shop_web_80|shop.test|/ bank_canary_web_80=bank_canary", {"shop", "bank"}),
        ("gateway::shop_web_80>bank", {"shop"}),
        ("b,1,gateway%3A%3Ashop_web_80%3A%3AHTTPRoute_bank_web%3A%3Aaccess,", {"shop", "bank"}),
        ("edge/gw/web|shop.test|/admin/ =HTTPRoute/bank/web/0.0", {"bank"}),
        ("10.0.0.0/8 yes", set()),
        ("no-route", set()),
    ],
)
def test_entries_of_maps_name_namespaces(text: str, namespaces: set[str]) -> None:
    assert namespaces_named(text) == namespaces


@pytest.mark.parametrize(
    ("header", "namespace"),
    [
        ("backend shop_web_80", "shop"),
        ("backend gateway::shop_web_80", "shop"),
        ("backend gateway::shop_web_80::HTTPRoute_bank_web::error-pages", "shop"),
        ("backend rate-limit::shop_web", "shop"),
        ("backend gateway-entry::gateway-port::shop_gw_443_inner_https", "shop"),
        ("backend gateway-clients::gateway-port::shop_gw_443_0123", "shop"),
        ("frontend gateway-port::shop_gw_443", "shop"),
        ("userlist nginx_shop_web", "shop"),
        # A tenant has a namespace with this name, and a Service with that of a victim.
        ("backend gateway_victim_80", "gateway"),
        ("frontend http", UNKNOWN),
        ("frontend https-connections", UNKNOWN),
        ("frontend tcp-service::9000", UNKNOWN),
        ("backend no-route", UNKNOWN),
        ("global", UNKNOWN),
        ("defaults profile-http", UNKNOWN),
    ],
)
def test_the_name_of_a_section_has_the_namespace(header: str, namespace: str) -> None:
    (section,) = parse_config(f"{header}\n").sections
    assert namespace_of_change(section) == namespace


def test_a_file_belongs_to_the_object_that_has_registered_it() -> None:
    own = make_file(FileKind.FILE, "general/crl.pem", "1", namespace="shop")
    read = make_file(FileKind.FILE, "general/crl.pem", "2")
    assert namespace_of_change(FileChange(own.path, own, None)) == "shop"
    # The running one was read from a disk.
    assert namespace_of_change(FileChange(own.path, read, own)) == "shop"
    assert namespace_of_change(FileChange(own.path, read, read)) == UNKNOWN
    foreign = make_file(FileKind.FILE, "general/crl.pem", "3", namespace="bank")
    assert namespace_of_change(FileChange(own.path, foreign, own)) == UNKNOWN


def test_of_a_file_of_lines_those_that_differ_count() -> None:
    before = lines_of(("a a", "shop"), ("b b", "bank"), ("c c", ""))
    for after, namespace in (
        (lines_of(("a a", "shop"), ("b b", "bank"), ("c c", ""), ("d d", "shop")), "shop"),
        (lines_of(("a a", "shop"), ("b x", "bank"), ("c c", "")), "bank"),
        (lines_of(("a x", "shop"), ("b x", "bank"), ("c c", "")), UNKNOWN),
        (lines_of(("a a", "shop"), ("b b", "bank"), ("c x", "")), UNKNOWN),
        # A part of it that an endpoint has got, with blanks before the keys.
        (make_file(FileKind.MAP, MAP, " b b\n c c\n"), "shop"),
    ):
        assert namespace_of_change(FileChange(MAP, before, after)) == namespace
    assert namespace_of_change(FileChange(MAP, None, lines_of(("a a", "shop")))) == "shop"


def test_a_plan_names_those_that_need_the_reload_and_those_that_it_affects() -> None:
    text = "defaults\n  mode http\nbackend shop_a_80\n{}backend bank_b_80\n  server s {}\n"
    before = built(text.format("", "10.0.0.1:80"))
    plan = make_plan(before, built(text.format("  balance leastconn\n", "10.0.0.2:80")))
    assert plan.causes == {"shop"}
    assert plan.affected == {"shop", "bank"}
    # What goes ahead of the reload does not wait for it.
    split = split_plan(before, built(text.format("  balance leastconn\n", "10.0.0.2:80")))
    assert split.operations
    assert split.causes == split.affected == {"shop"}


def test_data_of_another_namespace_that_waits_for_the_reload_is_affected() -> None:
    # The order of expressions counts, so a part of the changes of their map cannot go ahead.
    text = f"defaults\n  mode http\nfrontend http\n  use_backend %[path,map_reg({MAP})]\n{{}}backend bank_b_80\n"
    before = built(text.format(""), lines_of(("/a old", "shop")))
    after = built(
        text.format("backend shop_a_80\n"),
        lines_of(("/a old", "shop"), ("/s shop_a_80", "shop"), ("/b bank_b_80", "bank")),
    )
    split = split_plan(before, after)
    assert split.causes == {"shop"}
    assert split.affected == {"shop", UNKNOWN}


def test_a_line_of_a_map_that_waits_with_its_backend_affects_no_other_namespace() -> None:
    text = f"defaults\n  mode http\nfrontend http\n  use_backend %[path,map_str({MAP})]\n{{}}backend bank_b_80\n"
    before = built(text.format(""), lines_of(("/0 bank_b_80", "bank")))
    lines = ("/0 bank_b_80", "bank"), ("/b bank_b_80", "bank"), ("/s shop_a_80", "shop")
    split = split_plan(before, built(text.format("backend shop_a_80\n"), lines_of(*lines)))
    assert split.operations
    assert split.causes == split.affected == {"shop"}


def test_what_is_more_than_one_change_belongs_to_no_namespace() -> None:
    assert make_plan(None, built("global\n")).causes == {UNKNOWN}
    moved = make_plan(built("defaults d\nbackend a_b\n"), built("backend a_b\ndefaults d\n"))
    assert moved.causes == {UNKNOWN}
    many = "".join(f"  server s{number} 10.0.0.1:{{}}\n" for number in range(10_001))
    text = f"defaults\n  mode http\nbackend shop_web_80\n{many}"
    plan = make_plan(built(text.replace("{}", "80")), built(text.replace("{}", "81")))
    assert TOO_MANY in plan.reasons
    assert UNKNOWN in plan.causes
