"""Runtime operations are counted in the words of operators."""

from typing import get_args

from haptic_trio.dataplane.operation_counts import count_operations
from haptic_trio.haproxy.plan import operations as o


def test_operations_are_counted_by_kind_and_a_server_counts_once() -> None:
    found = count_operations(
        [
            o.SetServerAddress("web", "s1", "127.0.0.1", 80),
            o.SetServerWeight("web", "s1", 5),
            o.SetServerState("web", "s2", "drain"),
            o.DeleteServer("web", "s3"),
            o.AddMapEntry("maps/host.map", "a", "web"),
            o.AddMapEntry("maps/host.map", "b", "web"),
            o.EnableChecks("web", "s1"),
        ]
    )

    assert found == {"server changed": 2, "server removed": 1, "map entry added": 2}
    assert count_operations([]) == {}


def test_every_operation_that_adds_or_removes_something_is_counted() -> None:
    examples = [kind(*([""] * len(kind.__struct_fields__))) for kind in get_args(o.Operation)]

    silent = {type(one) for one in examples if not count_operations([one])}

    assert silent == {o.EnableChecks, o.PublishBackend, o.UnpublishBackend}
