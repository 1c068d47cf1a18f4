import pytest

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import make_generation
from haptic_trio.haproxy.plan.capabilities import Capabilities, capabilities_of
from haptic_trio.haproxy.plan.operations import (
    AddServer,
    DeleteServer,
    EnableChecks,
    Operation,
    Plan,
    SetServerAddress,
    SetServerState,
)
from haptic_trio.haproxy.plan.plan import OLDEST, make_plan

HEAD = "defaults d\n  mode http\n{defaults}backend app from d\n{section}"


def plan(
    before: list[str],
    after: list[str],
    *,
    section: str = "",
    defaults: str = "",
    capabilities: Capabilities = OLDEST,
) -> Plan:
    """Plan from some servers of a backend to others; each is what stands after `server`."""
    head = HEAD.format(defaults=defaults, section=section)
    texts = [head + "".join(f"  server {line}\n" for line in lines) for lines in (before, after)]
    return make_plan(*(make_generation(parse_config(text), ()) for text in texts), capabilities=capabilities)


def ready(name: str) -> Operation:
    return SetServerState("app", name, "ready")


ONE, TWO, THREE = (f"s{number} 10.0.0.{number}:80" for number in (1, 2, 3))


def test_a_server_that_comes_is_added_and_made_ready() -> None:
    assert plan([ONE], [ONE, TWO]).operations == (AddServer("app", "s2", "10.0.0.2:80"), ready("s2"))


def test_a_server_that_goes_is_deleted() -> None:
    assert plan([ONE, TWO], [ONE]).operations == (DeleteServer("app", "s2"),)


def test_what_comes_is_added_before_anything_goes() -> None:
    operations = plan([ONE, TWO], [ONE.replace(":80", ":81"), THREE]).operations
    assert operations == (
        AddServer("app", "s3", "10.0.0.3:80"),
        ready("s3"),
        SetServerAddress("app", "s1", "10.0.0.1", 81),
        DeleteServer("app", "s2"),
    )


def test_a_disabled_server_is_not_made_ready() -> None:
    assert plan([ONE], [ONE, f"{TWO} disabled"]).operations == (AddServer("app", "s2", "10.0.0.2:80"),)


@pytest.mark.parametrize(
    ("defaults", "section", "line", "options", "checks"),
    [
        ("  default-server maxconn 9\n", "", "weight 3", ("maxconn", "9", "weight", "3"), []),
        ("  default-server inter 9s\n", "  default-server inter 1s check\n", "", ("inter", "1s", "check"), [False]),
        ("  default-server check ssl verify none\n", "", "no-check no-ssl", ("verify", "none"), []),
        ("  default-server check disabled\n", "", "enabled", ("check",), [False]),
        ("", "", "no-check", (), []),
        ("", "", "agent-check agent-port 9 check", ("agent-check", "agent-port", "9", "check"), [False, True]),
    ],
)
def test_a_server_is_added_with_all_that_it_inherits(
    defaults: str, section: str, line: str, options: tuple[str, ...], checks: list[bool]
) -> None:
    found = plan([ONE], [ONE, f"{TWO} {line}"], defaults=defaults, section=section)
    expected = [EnableChecks("app", "s2", agent=agent) for agent in checks]
    assert found.operations == (AddServer("app", "s2", "10.0.0.2:80", options), ready("s2"), *expected)


@pytest.mark.parametrize(
    ("before", "after", "options"),
    [
        ("s2 10.0.0.2:80", "s2 10.0.0.2:80 maxconn 5", ("maxconn", "5")),
        ("s2 example.org:80", "s2 10.0.0.2:80", ()),
        ("s2 10.0.0.2:80 source 1.1.1.1", "s2 10.0.0.2:80", ()),
    ],
)
def test_a_server_that_no_command_alters_is_replaced_while_another_serves(
    before: str, after: str, options: tuple[str, ...]
) -> None:
    operations = plan([ONE, before], [ONE, after]).operations
    assert operations == (DeleteServer("app", "s2"), AddServer("app", "s2", "10.0.0.2:80", options), ready("s2"))


@pytest.mark.parametrize(
    "others", [[], [f"{ONE} disabled"], [f"{ONE} backup"]], ids=["alone", "beside a disabled one", "beside a backup"]
)
def test_a_server_that_alone_serves_is_not_replaced(others: list[str]) -> None:
    found = plan([*others, TWO], [*others, f"{TWO} maxconn 5"])
    assert found.reasons == ("backend app: server 's2' changed",)


@pytest.mark.parametrize(
    "line",
    [
        "s2 example.org:80",
        "s2 unix@/x",
        "s2 10.0.0.2",
        "s2 10.0.0.2:80 id 7",
        "s2 10.0.0.2:80 track s1",
        "s2 10.0.0.2:80 init-addr none",
        's2 10.0.0.2:80 cookie "$A"',
        "s2 10.0.0.2:80 resolvers r",
        # No command can carry these words.
        's2 10.0.0.2:80 agent-check agent-port 9 agent-send "status\\n"',
        's2 10.0.0.2:80 cookie ""',
    ],
)
def test_a_server_that_cannot_be_added_reloads(line: str) -> None:
    assert plan([ONE], [ONE, line]).reasons == ("backend app: server 's2' added",)


@pytest.mark.parametrize(
    "section",
    [
        "  balance static-rr\n",
        "  balance source\n",
        "  balance uri\n  hash-type map-based\n",
        "  disabled\n",
        '  balance "$A"\n',
        '  default-server cookie "$A"\n',
        "  default-server resolvers r\n",
    ],
)
def test_where_servers_cannot_be_added_that_reloads(section: str) -> None:
    assert plan([ONE], [ONE, TWO], section=section).reloads


HASHED = "  balance source\n  hash-type consistent\n"


@pytest.mark.parametrize(
    ("before", "after", "reloads"),
    [
        ([ONE], [ONE, TWO], False),
        ([ONE, TWO], [ONE], False),
        ([ONE, TWO], [TWO], True),
        ([TWO], [ONE, TWO], True),
        ([ONE, TWO], [TWO, ONE], True),
        ([ONE, TWO], [ONE, THREE], True),
        ([ONE, TWO], [ONE, f"{TWO} maxconn 5"], True),
        ([ONE, TWO], [ONE, f"{TWO} weight 5"], False),
    ],
)
def test_where_the_place_of_a_server_counts_only_the_end_changes_without_a_reload(
    before: list[str], after: list[str], *, reloads: bool
) -> None:
    assert plan(before, after, section=HASHED).reloads is reloads


def test_where_servers_are_alike_their_order_means_nothing() -> None:
    assert plan([ONE, TWO], [TWO, ONE]) == Plan()


def test_the_order_of_backup_servers_counts_unless_all_are_used() -> None:
    one, two = f"{ONE} backup", f"{TWO} backup"
    assert plan([one, two], [two, one]).reloads
    assert plan([two], [one, two]).reloads
    assert not plan([one], [one, two]).reloads
    assert not plan([one, two], [two, one], section="  option allbackups\n").reloads


def test_a_change_of_what_is_inherited_reloads() -> None:
    text = "backend app\n  default-server maxconn {}\n  server s1 10.0.0.1:80\n"
    texts = [text.format(1), text.format(2)]
    assert make_plan(*(make_generation(parse_config(one), ()) for one in texts)).reloads


def test_a_process_that_can_do_less_reloads() -> None:
    assert plan([ONE], [ONE, TWO], capabilities=Capabilities()).reloads
    assert plan([ONE], [ONE, TWO], capabilities=capabilities_of((2, 4))).reloads
    assert not plan([ONE], [ONE.replace(":80", ":81")], capabilities=Capabilities()).reloads
