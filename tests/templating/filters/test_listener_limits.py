"""Limits of listeners in annotations: they can lower those of the administrator, and never raise them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.emitters import microseconds
from haptic_trio.templating.filters.listener_limits import ListenerLimits, listener_limits, unknown_limits
from haptic_trio.templating.values.text import Emitted

MOST = {"timeout-client": "50s", "max-connections": 100, "rate-limit": 0, "max-body-size": "1m"}


def limits(port: int = 8080, **values: object) -> ListenerLimits:
    """Return the limits of *port* by the annotations *values*, with `_` for `-`."""
    annotations = {f"haptic-trio/{name.replace('_', '-')}": value for name, value in values.items()}
    return listener_limits({"other/max-connections": "1", **annotations}, port, MOST)


def test_lower_limits_apply_and_without_annotations_there_are_none() -> None:
    found = limits(timeout_client="1m30s", max_connections="99", rate_limit="5", max_body_size="64k")

    assert (found.timeout_client, found.max_connections) == ("", 99)
    assert (found.rate_limit, found.max_body_size) == (5, 65_536)
    assert limits() == ListenerLimits()
    assert type(limits(timeout_client="1s500ms").timeout_client) is Emitted
    assert limits(timeout_client="1s500ms").timeout_client == "1500ms"


def test_limit_above_that_of_the_administrator_is_ignored_and_reported() -> None:
    found = limits(timeout_client="51s", max_connections="100")

    assert (found.timeout_client, found.max_connections) == ("", 0)
    (message,) = found.ignored
    assert message == (
        "port 8080: haptic-trio/timeout-client is 51s, and the administrator's limit 50s applies;"
        " a Gateway can only lower it"
    )


@given(st.integers(1, 2_000_000), st.integers(0, 2_000_000), st.sampled_from(["us", "ms", "s"]))
def test_no_timeout_is_longer_than_that_of_the_administrator(wanted: int, most: int, unit: str) -> None:
    limit = {"timeout-client": f"{most}ms"}
    found = listener_limits({"haptic-trio/timeout-client": f"{wanted}{unit}"}, 80, limit).timeout_client

    assert not found or not most or microseconds(found) < most * 1_000


def test_value_may_name_ports() -> None:
    value = "8080=10 50 8443=20"

    assert [limits(port, max_connections=value).max_connections for port in (8080, 8443, 9000)] == [10, 20, 50]
    assert limits(9000, max_connections="8080=10").max_connections == 0


def test_limit_that_does_not_concern_the_protocol_of_a_port_has_no_effect() -> None:
    assert limits(timeout_http_request="1s") == ListenerLimits()


def test_unknown_name_is_reported_with_the_one_that_is_meant() -> None:
    annotations = {"haptic-trio/max-conections": "5", "haptic-trio/rate-limit": "5", "other/x": "5"}

    assert unknown_limits(annotations) == ["haptic-trio/max-conections is not known; did you mean 'max-connections'?"]


def test_ten_of_many_unknown_names_are_reported() -> None:
    found = unknown_limits({f"haptic-trio/x{number}": "" for number in range(10, 30)})

    assert found[0] == "haptic-trio/x10 is not known"
    assert found[9:] == ["haptic-trio/x19 is not known; 10 more are not known, either"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max-connections", ""),
        ("max-connections", "many"),
        ("max-connections", "-1"),
        ("max-connections", "0"),
        ("max-connections", "1 2"),
        ("max-connections", "80=1 80=2"),
        ("max-connections", "80=1 81=x"),
        ("max-connections", "0=1"),
        ("max-connections", "1\n    mode tcp"),
        ("max-connections", 5),
        ("max-connections", " ".join(f"{port}=1" for port in range(1, 66))),
        ("timeout-client", "5"),
        ("timeout-client", "0s"),
        ("timeout-client", "1s;"),
        ("max-body-size", "0"),
        ("max-body-size", "9999999g"),
    ],
)
def test_value_that_cannot_be_read_names_its_annotation(name: str, value: object) -> None:
    with pytest.raises(EmitError, match=f"^haptic-trio/{name}: "):
        listener_limits({f"haptic-trio/{name}": value}, 8080, MOST)
