"""A guard and what it guards change without a reload only if no request meets the one without the other."""

import time
from collections.abc import Mapping

import pytest

from haptic_trio.haproxy.config.guards import ChangedGuards
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.diff import diff_files
from haptic_trio.haproxy.plan.operations import (
    AddMapEntry,
    DeleteMapEntry,
    Operation,
    SetMapEntry,
    SetServerAddress,
    StoreTrust,
)
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.haproxy.plan.split import split_plan
from tests.haproxy.plan.test_split import MAP, NEWEST, build

ALLOW, DENY, KEYS, TRUST = "maps/allow.map", "maps/deny.map", "maps/keys.map", "ssl/clients.txt"
OWN = f"""\
backend shop_own from http
  http-request deny unless {{ src,map_ip({ALLOW}) -m found }}
  http-request deny if {{ src,map_ip({DENY}) -m found }}
"""
OTHER = f"""\
backend shop_other from http
  http-request deny unless {{ hdr(key),map_str({KEYS}) -m found }}
  server s1 10.0.0.1:80
"""
SITE = {"more": OWN + OTHER}
FEW, ALL = "10.0.0.0/8 yes\n", "0.0.0.0/0 yes\n"


def stage(*parts: Mapping[str, str], namespace: str = "shop", **files: str) -> Generation:
    """Return the base with *parts*; *files* of the objects of *namespace* are few by default."""
    base = build(SITE, *parts)
    contents = {ALLOW: files.get("allow", FEW), DENY: files.get("deny", FEW), KEYS: files.get("keys", "k one\n")}
    found: list[AuxFile] = [
        make_file(FileKind.MAP, path, content, namespace=namespace) for path, content in contents.items()
    ]
    return make_generation(base.config, base.files.changed(found))


def plan(before: Generation, after: Generation) -> tuple[Operation, ...]:
    """Return the operations without a reload; none with one."""
    return make_plan(before, after).operations


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/admin shop_own\n", "/public shop_own\n"),
        ("/admin shop_own\n", "/admin app\n"),
        ("/admin shop_own\n", ""),
        ("", "/admin shop_own\n"),
        # Of equal keys, the first one is used.
        ("/admin shop_own\n/admin app\n", "/admin app\n/admin shop_own\n"),
        # The entry of this key, whatever it is, may lead to each backend of the namespace.
        ("/admin =HTTPRoute/shop/route/1.0\n", "/public =HTTPRoute/shop/route/1.0\n"),
    ],
)
def test_clients_and_routes_of_a_backend_change_together_by_a_reload(before: str, after: str) -> None:
    running, desired = stage({MAP: before}), stage({MAP: after}, allow=ALL)
    assert make_plan(running, desired).reasons == (f"file {ALLOW} changed, and routes to backends that look it up",)


def test_two_files_about_the_clients_of_a_backend_change_together_by_a_reload() -> None:
    # Clients that the one begins to admit, and the other one to deny, would be let in.
    found = make_plan(stage(), stage(allow=ALL, deny=ALL))
    assert set(found.reasons) == {f"file {DENY} changed, and {ALLOW}: both decide about the same clients"}
    assert found.causes == {"shop"}


def test_clients_of_one_backend_and_routes_to_others_need_no_reload() -> None:
    # New paths take requests from the backend, and removed ones leave them to it: each meets the list of its path.
    running = stage({MAP: "/ shop_own\n/a app\n/b app\n"})
    desired = stage({MAP: "/ shop_own\n/a shop_other\n/c shop_other\n"}, allow=ALL)
    assert plan(running, desired) == (
        AddMapEntry(MAP, "/c", "shop_other"),
        SetMapEntry(MAP, "/a", "shop_other"),
        AddMapEntry(ALLOW, "0.0.0.0/0", "yes"),
        DeleteMapEntry(ALLOW, "10.0.0.0/8"),
        DeleteMapEntry(MAP, "/b"),
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (stage(), stage(allow=ALL)),
        (stage({MAP: "/a shop_own\n"}), stage({MAP: "/b shop_own\n"})),
        # Keys of one Secret, for example, are files of several backends.
        (stage(), stage(allow=ALL, keys="k two\n")),
        (stage({MAP: "/a =HTTPRoute/web/r/1.0\n"}), stage({MAP: "/b =HTTPRoute/web/r/1.0\n"}, allow=ALL)),
        # Those of the administrator are for no backend.
        (stage(namespace=""), stage({MAP: "/b shop_own\n"}, allow=ALL, deny=ALL, namespace="")),
    ],
    ids=["clients", "route", "other backends", "route of another namespace", "administrator"],
)
def test_other_changes_of_routes_and_clients_need_no_reload(before: Generation, after: Generation) -> None:
    found = make_plan(before, after)
    assert found.operations
    assert not found.reasons


def test_paths_of_cookies_change_with_the_routes_without_a_reload() -> None:
    more = f"backend shop_own from http\n  http-request set-var(txn.p) var(txn.path),map_beg({ALLOW})\n"
    running, desired = (
        stage({"more": more, MAP: f"{path} shop_own\n"}, allow=f"{path} {path}\n") for path in ("/a", "/b")
    )
    assert len(plan(running, desired)) == 4


def test_authorities_of_clients_and_routes_of_their_namespace_change_together_by_a_reload() -> None:
    def trusting(route: str, text: bytes) -> Generation:
        base = build({MAP: route, "frontend": f"  bind 127.0.0.1:2 ssl crt ssl/a.pem ca-file {TRUST}\n"})
        file = make_file(FileKind.FILE, TRUST, text, namespace="shop")
        return make_generation(base.config, base.files.changed([file]))

    running = trusting("/a shop_own\n", b"one\n")
    together = make_plan(running, trusting("/b shop_own\n", b"two\n"), capabilities=NEWEST)
    assert together.reasons == (f"file {TRUST} changed, and routes to backends that look it up",)
    alone = make_plan(running, trusting("/a shop_own\n/b app\n", b"two\n"), capabilities=NEWEST)
    assert alone.operations == (StoreTrust("ca-file", TRUST, b"two\n"), AddMapEntry(MAP, "/b", "app"))


def test_very_many_files_and_routes_of_a_namespace_take_linear_time() -> None:
    # One Secret may have the keys for thousands of Ingresses.
    count = 3_000
    sections = "".join(
        f"backend shop_{number} from http\n  http-request deny unless {{ src,map_ip(maps/{number}.map) -m found }}\n"
        for number in range(count)
    )

    def site(path: str, network: str) -> Generation:
        base = build({"more": sections, MAP: "".join(f"{path}/{number} app\n" for number in range(count))})
        files = [
            make_file(FileKind.MAP, f"maps/{number}.map", f"{network} yes\n", namespace="shop")
            for number in range(count)
        ]
        return make_generation(base.config, base.files.changed(files))

    running, desired = site("/a", "10.0.0.0/8"), site("/b", "10.0.0.0/9")
    changes = diff_files(running.files, desired.files)
    began = time.process_time()
    assert ChangedGuards(running, changes).conflicts == {}
    assert time.process_time() - began < 2


def test_changes_of_others_do_not_wait_for_this_reload() -> None:
    def site(path: str, address: str, allow: str) -> Generation:
        routes = {MAP: f"{path} shop_own\n{path}/x shop_other\n{path}/y app\n"}
        return stage(routes, {"more": OWN + OTHER.replace("10.0.0.1", address)}, allow=allow)

    running, desired = site("/a", "10.0.0.1", FEW), site("/b", "10.0.0.2", ALL)
    found = split_plan(running, desired)
    assert found.operations == (
        SetServerAddress("shop_other", "s1", "10.0.0.2", 80),
        AddMapEntry(MAP, "/b/y", "app"),
        DeleteMapEntry(MAP, "/a/y"),
    )
    assert found.causes == {"shop"}
    assert found.effective is not None
    assert make_plan(found.effective, desired).reasons == found.reasons
