"""References of routes to filters of the administrator: which are resolved, and what the status says of the others."""

from typing import Any

import pytest

from haptic_trio.gateway.extensions import guards_of
from haptic_trio.gateway.reasons import route_faults
from haptic_trio.gateway.routes.kinds import HTTP_ROUTE
from haptic_trio.gateway.routes.rules import faults_of
from haptic_trio.status.gateway_conditions import route_parents
from tests.gateway.filters.test_extension_filters import extension
from tests.gateway.filters.test_filters import leading_to, mirroring
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, route, rule, service, stores_of

EXTERNAL = {"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP", "backendRef": {"name": "auth", "port": 80}}}


def test_filters_that_haproxy_would_skip_make_the_rule_invalid() -> None:
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": "b.test"}}
    other = rule("/", to="web", filters=[extension("mark")])
    other["backendRefs"][0]["filters"] = [redirect]
    for faulty, word in (
        (rule("/", to="web", filters=[*mirroring("web"), extension("mark")]), "RequestMirror"),
        (other, "RequestRedirect"),
        (rule("/", to="web", filters=[extension(f"f{number}") for number in range(9)]), "at most 8"),
    ):
        [fault] = faults_of(route("r", faulty), HTTP_ROUTE, stores_of(*leading_to("web", 80)))
        assert word in fault.message
        assert fault.message.endswith("requests of the rule are answered with 500")


@pytest.mark.parametrize(
    ("reference", "reason", "message"),
    [
        ({"name": "nope"}, "BackendNotFound", "there is no filter nope; allowed filters: error-pages, mark"),
        ({"name": "other"}, "RefNotPermitted", "the filter other is not allowed in the namespace web; allowed filters"),
        (
            {"name": "mark", "kind": "Snippet"},
            "InvalidKind",
            "Snippet of the group haptic-trio.io is not supported; use",
        ),
        ({"name": "mark", "group": ""}, "InvalidKind", "Filter of the group core is not supported; use Filter of"),
        ({"name": "a b\n"}, "InvalidKind", "the name of a filter has"),
    ],
)
def test_the_status_says_why_a_filter_is_not_resolved(reference: dict[str, str], reason: str, message: str) -> None:
    allowed = {"mark": ["*"], "error-pages": ["web"], "other": ["another"]}
    found = route("r", rule("/ok"), rule("/", filters=[extension(**{"name": "mark", **reference})]))
    stores = stores_of(gateway_class(), gateway(), service(), found)

    [parent] = route_parents(found, HTTP_ROUTE, stores, CONTROLLER, allowed)
    [fault] = [one for one in route_faults(found, stores, CONTROLLER, allowed) if "filters" in one.path]

    conditions = {one["type"]: one for one in parent["conditions"]}
    assert conditions["Accepted"]["status"] == "True"
    assert (conditions["ResolvedRefs"]["status"], conditions["ResolvedRefs"]["reason"]) == ("False", reason)
    assert conditions["ResolvedRefs"]["message"].startswith(f"rules[1].filters[0].extensionRef: {message}")
    assert (fault.reason, fault.path) == (reason, "spec.rules[1].filters[0].extensionRef")
    assert fault.message.startswith(message)
    assert fault.message.endswith("(gatewayFilters); requests of the rule are answered with 500")


def test_a_route_with_allowed_filters_has_resolved_references() -> None:
    found = route("r", rule("/", filters=[extension("mark")]))
    stores = stores_of(gateway_class(), gateway(), service(), found)
    [parent] = route_parents(found, HTTP_ROUTE, stores, CONTROLLER, {"mark": ["*"]})
    assert {one["status"] for one in parent["conditions"]} == {"True"}


def test_a_version_of_a_route_lacks_a_guard_if_something_is_filtered_that_was_not() -> None:
    def behind(*filters: str) -> dict[str, Any]:
        refs = [{"name": name, "port": 80, "filters": [extension("mark")] if name in filters else []} for name in "ab"]
        return rule("/", backendRefs=refs)

    mark, clients = [extension("mark")], [extension("clients")]
    open_route, filtered = route("r", rule("/")), route("r", rule("/"), rule("/a", filters=mark), hostnames=["a.test"])
    only_a = route("r", rule("/", backendRefs=[{"name": "a", "port": 80, "filters": mark}]))
    lacking = (
        (open_route, filtered),
        (filtered, route("r", rule("/"), rule("/a", filters=[*mark, *clients]), hostnames=["a.test"])),
        (filtered, route("r", rule("/", filters=mark), rule("/a", filters=mark), hostnames=["a.test"])),
        (filtered, route("r", rule("/"), rule("/a", filters=mark), hostnames=["a.test", "b.test"])),
        (filtered, route("r", rule("/"), rule("/a", filters=mark))),
        (route("r", behind("a")), route("r", behind("a", "b"))),
        (route("r", behind("a")), only_a),
        (route("r", rule("/"), rule("/a"), behind("a")), route("r", rule("/a"), only_a["spec"]["rules"][0])),
        (filtered, route("r", rule("/a", filters=mark), hostnames=["a.test"])),
        (route("r", rule("/"), rule("/a"), rule("/a", filters=mark)), route("r", rule("/"), rule("/a", filters=mark))),
        (open_route, route("r", rule("/", filters=[EXTERNAL]))),
        (open_route, route("r", rule("/", backendRefs=[{"name": "a", "port": 80, "filters": [EXTERNAL]}]))),
    )
    same = (
        (filtered, open_route),
        (filtered, route("r", rule("/a", filters=mark), rule("/new"), rule("/"), hostnames=["a.test"])),
        (route("r", rule("/a", filters=[*clients, *mark])), route("r", rule("/a", filters=mark))),
        (route("r", behind("a", "b")), route("r", behind("b", "a"))),
        (only_a, route("r", behind("a"))),
        (route("r", rule("/a", filters=mark)), route("r", rule("/a"), rule("/a", filters=mark))),
    )

    assert guards_of(open_route) == []
    assert guards_of(route("r", rule("/", filters=mirroring("web")))) == []
    for before, now in lacking:
        assert not {*guards_of(now)} <= {*guards_of(before)}
    for before, now in same:
        assert {*guards_of(now)} <= {*guards_of(before)}
