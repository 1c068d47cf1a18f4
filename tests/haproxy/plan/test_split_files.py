"""Routes wait for the reload that brings the rules of their backends, and others do not."""

from collections.abc import Mapping

import pytest

from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.operations import AddMapEntry, DeleteMapEntry, ReplaceMap, SetMapEntry, SetServerAddress
from haptic_trio.haproxy.plan.split import split_plan
from tests.haproxy.plan.test_split import MAP, build
from tests.haproxy.test_causes import lines_of

OWN = "backend shop_own from http\n  server s1 10.0.0.1:80\n"
OTHER = "backend shop_other from http\n  server s1 10.0.0.1:80\n"
DENY = "  http-request deny unless { http_auth(users_shop_own) }\n"
FROM_OTHER, OTHERS = OWN.replace("from http", "from others"), "defaults others\n  mode http\n"
USERS = "userlist users_shop_own\n  user one insecure-password one\n"
ALLOW = "maps/allow.map"
ALLOWED = OWN + f"  http-request deny unless {{ src,map_ip({ALLOW}) -m found }}\n"
SLOW = "  timeout server 5s\n"


def listed(content: str, namespace: str = "shop") -> AuxFile:
    """Return a list of clients, as a map that an object of *namespace* has registered."""
    return make_file(FileKind.MAP, ALLOW, content, namespace=namespace)


def guarded(file: AuxFile, *parts: Mapping[str, str]) -> Generation:
    base = build(*parts)
    return make_generation(base.config, base.files.changed([file]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"more": OWN}, {"more": OWN + DENY}),
        ({"more": OWN + DENY + USERS}, {"more": OWN + DENY + USERS.replace("one", "two")}),
        ({"more": FROM_OTHER, "defaults": OTHERS}, {"more": FROM_OTHER, "defaults": OTHERS + "  http-request deny\n"}),
        ({"more": OWN}, {"more": FROM_OTHER, "defaults": OTHERS}),
    ],
    ids=["rule", "users", "profile", "another profile"],
)
def test_a_route_waits_for_the_rules_of_its_backend(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    running = build({MAP: "/a shop_own\n/b app\n"}, before)
    desired = {MAP: "/a shop_own\n/b shop_own\n/c more%3A%3Ax,shop_own\n/d app\n"}
    found = split_plan(running, build(desired, after))
    assert found.reasons
    assert found.operations == (AddMapEntry(MAP, "/d", "app"),)


def test_servers_and_routes_of_others_do_not_wait_for_rules() -> None:
    running = build({MAP: "/a shop_own\n/b web_app\n", "more": OWN + OTHER})
    changed = OTHER.replace("0.1", "0.2")
    found = split_plan(running, build({MAP: "/a shop_own\n/c web_app\n/d shop_other\n", "more": OWN + DENY + changed}))
    assert found.operations == (
        SetServerAddress("shop_other", "s1", "10.0.0.2", 80),
        AddMapEntry(MAP, "/c", "web_app"),
        AddMapEntry(MAP, "/d", "shop_other"),
        DeleteMapEntry(MAP, "/b"),
    )


def test_a_route_is_removed_after_the_rules_of_its_namespace_change() -> None:
    # Its requests go to a shorter path, whose backend has no rule yet.
    running = build({MAP: "/ shop_own\n/admin shop_other\n/b web_app\n", "more": OWN + OTHER + DENY})
    found = split_plan(running, build({MAP: "/ shop_own\n", "more": OWN + DENY}))
    assert found.operations == (DeleteMapEntry(MAP, "/b"),)


def test_no_route_of_a_namespace_changes_before_another_one_that_waits() -> None:
    # The entries of rules change places: the first half of that would lead from `/admin` to what was the other rule.
    rules = "maps/rules.map"
    frontend = {"frontend": f"  http-request set-var(txn.rule) path,map({rules})\n"}
    former = {rules: "HTTPRoute/shop/r/0 shop_other\nHTTPRoute/shop/r/1 shop_own\n"}
    latter = {rules: "HTTPRoute/shop/r/0 shop_own\nHTTPRoute/shop/r/1 shop_new\n"}
    added = OTHER.replace("other", "new") + DENY
    running = build({MAP: "/admin =HTTPRoute/shop/r/0\n/ =HTTPRoute/shop/r/1\n", "more": OWN + OTHER}, frontend, former)
    routes = {MAP: "/admin =HTTPRoute/shop/r/1\n/ =HTTPRoute/shop/r/0\n/b app\n"}
    found = split_plan(running, build(routes, {"more": OWN + OTHER + added}, frontend, latter))
    assert found.operations == (AddMapEntry(MAP, "/b", "app"),)


def test_a_list_of_addresses_does_not_wait_with_the_routes_to_other_backends_of_its_namespace() -> None:
    running = guarded(listed("10.0.0.0/8 yes\n"), {MAP: "/a shop_own\n", "more": ALLOWED + OTHER})
    changed = {MAP: "/a shop_own\n/b shop_other\n", "more": ALLOWED + OTHER + DENY}
    found = split_plan(running, guarded(listed(""), changed))
    assert found.operations == (DeleteMapEntry(ALLOW, "10.0.0.0/8"),)


def test_a_route_that_waits_counts_for_the_namespace_of_its_object() -> None:
    running = routed(OWN, ("/a shop_own", "shop"), ("/c app", "web"))
    found = split_plan(running, routed(OWN + OTHER, ("/a shop_other", "shop"), ("/d app", "web")))
    assert found.operations == (AddMapEntry(MAP, "/d", "app"), DeleteMapEntry(MAP, "/c"))
    assert found.causes == found.affected == frozenset({"shop"})


def routed(more: str, *entries: tuple[str, str]) -> Generation:
    """Return a generation with *more* sections and *entries* of its map, each with the namespace of its object."""
    base = build({"more": more})
    return make_generation(base.config, base.files.changed([lines_of(*entries, path=MAP)]))


def test_a_path_that_passes_to_another_namespace_does_not_fall_to_a_shorter_one_meanwhile() -> None:
    # The former owner has a rule for it, and so has the next one.
    kept, taken = ("h|/ shop_other", "shop"), ("h|/a web_own", "web")
    running = routed(OWN + OTHER, ("h|/a/ shop_own", "shop"), kept, ("h|/b/ shop_own", "shop"))
    web = OWN.replace("shop", "web")
    found = split_plan(running, routed(OWN + OTHER + web, kept, taken))
    assert found.operations == (DeleteMapEntry(MAP, "h|/b/"),)
    # The reload counts for the next owner alone, also if nothing else changes.
    assert found.causes == found.affected == frozenset({"web"})
    assert found.effective is not None
    again = split_plan(found.effective, routed(OWN + OTHER + web, kept, taken))
    assert (again.operations, again.causes, again.affected) == ((), frozenset({"web"}), frozenset({"web"}))


def test_a_host_that_ends_lookups_goes_on_to_do_so_until_the_next_rules_for_every_host_are_there() -> None:
    running = build({MAP: "*|/ shop_own\nh|/a/ app\nh| no-path\n", "more": OWN})
    web = OWN.replace("shop", "web")
    found = split_plan(running, build({MAP: "*|/ web_own\nh|/a/ app\nh| no-wildcard\nh|/b/ app\n", "more": OWN + web}))
    assert found.operations == (AddMapEntry(MAP, "h|/b/", "app"),)


def test_repeated_keys_make_no_routes_of_others_wait_and_none_change_too_early() -> None:
    running = build({MAP: "/a app\n/a shop_own\n/b shop_own\n/b app\n", "more": OWN})
    found = split_plan(running, build({MAP: "/a app\n/a shop_own\n/b shop_other\n/c app\n", "more": OWN + OTHER}))
    entries = ("/a", "app"), ("/a", "shop_own"), ("/c", "app"), ("/b", "shop_own"), ("/b", "app")
    assert found.operations == (ReplaceMap(MAP, entries),)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Other clients are to reach the new path, not the former one.
        ({MAP: "/admin shop_own\n", "more": ALLOWED}, {MAP: "/public shop_own\n", "more": ALLOWED + SLOW}),
        # They are to have a password.
        ({MAP: "/admin shop_own\n", "more": ALLOWED}, {MAP: "/admin shop_own\n", "more": ALLOWED + DENY}),
        (
            {MAP: "/admin shop_own\n", "more": ALLOWED + DENY + USERS},
            {"more": ALLOWED + DENY + USERS.replace("one", "two")},
        ),
        # The path of the backend waits for another one of its namespace.
        (
            {MAP: "/admin shop_own\n/b shop_other\n", "more": ALLOWED + OTHER},
            {MAP: "/public shop_own\n/c shop_other\n", "more": ALLOWED + OTHER + DENY},
        ),
    ],
    ids=["path", "rule", "users", "path of another backend"],
)
def test_the_clients_that_a_backend_admits_wait_with_its_routes_and_rules(
    before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    running = guarded(listed("10.0.0.0/8 yes\n"), before)
    found = split_plan(running, guarded(listed("0.0.0.0/0 yes\n"), {MAP: before[MAP]}, after))
    assert (found.effective, found.operations) == (None, ())
    assert found.reasons


def test_a_list_of_all_namespaces_does_not_wait_for_a_backend() -> None:
    running = guarded(listed("10.0.0.0/8 yes\n", ""), {MAP: "/a shop_own\n", "more": ALLOWED})
    found = split_plan(running, guarded(listed("", ""), {MAP: "/b shop_own\n", "more": ALLOWED + SLOW}))
    assert found.operations == (DeleteMapEntry(ALLOW, "10.0.0.0/8"),)


ASK = "maps/ask.map"
ASKS = "  http-request set-var(txn.ask) str({}),map_str(maps/ask.map)\n"


def test_an_entry_does_not_wait_for_a_rule_of_another_namespace_that_looks_up_another_one() -> None:
    # One namespace would keep the addresses of the authentication servers of all others.
    web = OWN.replace("shop", "web") + ASKS.format("own_web")
    running = build({ASK: "own_web /a\n", "more": web})
    found = split_plan(running, build({ASK: "own_web /b\nown_shop /a\n", "more": web + OWN + ASKS.format("own_shop")}))
    assert found.operations == (AddMapEntry(ASK, "own_shop", "/a"), SetMapEntry(ASK, "own_web", "/b"))


def test_a_removed_entry_waits_with_the_rules_that_contain_its_key() -> None:
    former = {ASK: "one_shop /a\ntwo_web /a\nthree_web /a\n", "more": OWN + ASKS.format("one_shop")}
    latter = {ASK: "four_shop /b\nthree_web /b\n", "more": OWN + ASKS.format("four_shop")}
    found = split_plan(build(former), build(latter))
    assert found.operations == (
        AddMapEntry(ASK, "four_shop", "/b"),
        SetMapEntry(ASK, "three_web", "/b"),
        DeleteMapEntry(ASK, "two_web"),
    )
