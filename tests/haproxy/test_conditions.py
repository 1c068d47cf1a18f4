"""An `.if` prevents the comparison of the servers that inherit from its section, and of no others."""

import pytest

from tests.haproxy.runtime.test_read_back import HEAD, FakeProcess, build, find_differences


@pytest.mark.parametrize(("where", "compared"), [("global", True), ("defaults d", False)])
def test_conditions_elsewhere_hide_no_server_unless_it_inherits_them(where: str, compared: bool) -> None:
    text = f"global\n{HEAD}backend app from d\n  server s 10.0.0.1:80\n"
    assert f"{where}\n" in text
    generation = build(text.replace(f"{where}\n", f"{where}\n.if 1\n.endif\n", 1))
    found = find_differences(generation, FakeProcess({("app", "s"): ("10.0.0.9", 80, 1, 0)}, ())).findings
    assert bool(found) is compared
