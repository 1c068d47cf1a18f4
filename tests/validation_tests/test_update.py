from textwrap import dedent

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.validation_tests.update import UpdateError, update_config_map, update_tests

FILE = """\
# Ours.
validationTests:
  one:   # the first
    assertions:
      - type: haproxy_valid
      - type: equals
        section: backend web
        expected: |
          backend web
              server one

      # What follows is another.
      - type: equals
        expected: "in quotes"   # short
        target: host.map
  two:
    assertions: [{type: equals, expected: x}]
"""


def test_only_the_expected_text_is_replaced() -> None:
    updated = update_tests(FILE, {("one", 1): "backend web\n    server two\n\n    x\n"}, source="x")

    assert updated == FILE.replace(
        "          backend web\n              server one\n",
        "          backend web\n              server two\n\n              x\n",
    )


def test_a_text_in_quotes_becomes_a_block() -> None:
    updated = update_tests(FILE, {("one", 2): "a b\nc d\n", ("one", 1): "new\n"}, source="x")

    tests = yaml.safe_load(updated)["validationTests"]["one"]["assertions"]
    assert (tests[1]["expected"], tests[2]) == (
        "new\n",
        {"type": "equals", "expected": "a b\nc d\n", "target": "host.map"},
    )
    assert "# What follows is another." in updated


@given(st.lists(st.sampled_from(["a", "  b", "", "# c", "- d", "e: f", "'", "\\"]), max_size=6))
def test_any_text_is_read_back_as_it_was(lines: list[str]) -> None:
    while lines and not lines[-1]:
        lines.pop()
    text = "".join(f"{line}\n" for line in lines)
    for index in (1, 2):
        updated = update_tests(FILE, {("one", index): text}, source="x")
        tests = yaml.safe_load(updated)["validationTests"]["one"]["assertions"]
        assert tests[index]["expected"] == text
        assert len(tests) == 3


def test_an_assertion_in_braces_is_left_to_its_author() -> None:
    with pytest.raises(UpdateError, match="without braces"):
        update_tests(FILE, {("two", 0): "y\n"}, source="x")


MANIFESTS = """\
kind: Service
metadata: {name: web}
---
# The configuration.
kind: ConfigMap
metadata:
  name: haptic-trio
data:
  config: |
    templating: {}
    validationTests:
      one:
        assertions:
          - type: equals
            expected: |
              old

    # The end of it.
---
kind: Service
metadata: {name: api}
"""


def test_a_text_within_a_config_map_is_replaced_where_it_stands() -> None:
    updated = update_config_map(
        MANIFESTS, {("one", 0): "new\n  and more\n"}, namespace="default", name="haptic-trio", source="x"
    )

    assert updated == MANIFESTS.replace("              old\n", "              new\n                and more\n")


def test_other_files_are_not_for_us() -> None:
    assert update_config_map(MANIFESTS, {("one", 0): "x"}, namespace="other", name="haptic-trio", source="x") is None


def test_a_configuration_that_is_not_a_block_is_left_to_its_author() -> None:
    folded = dedent("""\
        kind: ConfigMap
        metadata: {name: haptic-trio}
        data: {config: "validationTests: {}"}
        """)
    with pytest.raises(UpdateError, match="not a block scalar"):
        update_config_map(folded, {("one", 0): "x"}, namespace="default", name="haptic-trio", source="x")
