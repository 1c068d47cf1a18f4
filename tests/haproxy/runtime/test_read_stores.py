"""Differences between the ACL lists of a process and the files of its generation are found."""

import pytest

from haptic_trio.haproxy.plan.operations import ReplaceAcl
from haptic_trio.haproxy.runtime.differences import Kind, count_kinds, reload_reasons, repair_operations
from tests.haproxy.runtime.test_read_back import HEAD, FakeProcess, build, find_differences


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("0x1 b \n0x2 a c\n\n", {}),
        ("0x1 b \n0x2 a c\n0x3 b \n\n", {"acl": 1}),
        ("0x1 b\n0x2 a c\n\n", {"acl": 1}),
        ("\n", {"acl": 1}),
    ],
)
def test_a_list_is_compared_key_by_key_whatever_their_order(answer: str, found: dict[str, int]) -> None:
    text = HEAD + "frontend f from d\n  bind 127.0.0.1:1\n  http-request deny if { path -f lists/x.txt }\n"
    generation = build(text, {"lists/x.txt": b"a c\nb \n"})
    process = FakeProcess({}, ())
    differences = find_differences(generation, lambda question: answer if "acl" in question else process(question))
    mine = [one for one in differences.findings if one.kind is Kind.ACL]
    assert count_kinds(mine) == found
    assert repair_operations(mine) == ((ReplaceAcl("lists/x.txt", ("a c", "b ")),) if found else ())


def test_a_list_that_the_process_does_not_know_is_a_reason_to_reload() -> None:
    text = HEAD + "frontend f from d\n  bind 127.0.0.1:1\n  http-request deny if { path -f lists/x.txt }\n"
    generation = build(text, {"lists/x.txt": b"a\n", "lists/other.txt": b"a\n"})
    process = FakeProcess({}, ())
    unknown = "Unknown ACL identifier. Please use #<id> or <file>.\n\n"
    found = find_differences(generation, lambda question: unknown if "acl" in question else process(question)).findings
    assert "drift: acl lists/x.txt removed" in reload_reasons(found)
    assert not any("other.txt" in one.what for one in found)
