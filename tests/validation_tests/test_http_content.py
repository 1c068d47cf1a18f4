"""Tests that give what templates fetch: nothing is fetched, and nothing that is not given is taken for empty."""

from typing import Any

import pytest

from haptic_trio.validation_tests.results import CaseResult, Verdict
from tests.validation_tests.builders import load, run

CONFIG = """\
templating: {libraries: [], extraContext: {critical: false}}
maps:
  deny.map:
    template: |
      {% for line in http.fetch("https://lists.example.com/deny.txt", interval="5m", critical=critical).splitlines() %}
      {{ line | map_key }} denied
      {% endfor %}
haproxyConfig:
  template: |
    global
        maxconn 100

    defaults
        mode http
        timeout connect 5s
        timeout client 5s
        timeout server 5s

    frontend web
        bind *:8080
        http-request deny if { src,map_ip(maps/deny.map) -m found }
"""
GIVEN = "httpResources: [{url: 'https://lists.example.com/deny.txt', content: \"192.0.2.1\\n192.0.2.2\\n\"}]"


def results(tests: str, **options: Any) -> dict[str, CaseResult]:
    return {result.name: result for result in run(load(tests, base=CONFIG), **options)}


def faults(tests: str) -> dict[str, list[str]]:
    return {
        name: [checked.message for checked in result.checked if checked.verdict is not Verdict.PASSED]
        for name, result in results(tests).items()
    }


def test_templates_get_what_the_test_gives() -> None:
    found = faults(
        f"""\
        listed:
          {GIVEN}
          assertions: [{{type: map_entry, map: maps/deny.map, key: 192.0.2.2, value: denied}}]
        inherited:
          extends: listed
          assertions: [{{type: map_entry, map: maps/deny.map, key: 192.0.2.1, value: denied}}]
        emptied:
          extends: listed
          httpResources: [{{url: "https://lists.example.com/deny.txt", content: ""}}]
          assertions: [{{type: equals, target: maps/deny.map, expected: ""}}]
        failing:
          httpResources: [{{url: "https://lists.example.com/deny.txt", error: the server answered 503}}]
          assertions: [{{type: equals, target: maps/deny.map, expected: ""}}]
        critical:
          extends: failing
          extraContext: {{critical: true}}
          assertions: [{{type: rendering_error, text: the server answered 503}}]
        bad:
          httpResources: [{{url: "https://lists.example.com/deny.txt", content: two words}}]
          assertions: [{{type: rendering_error, text: map_key}}]
        """
    )

    assert list(found) == ["listed", "inherited", "emptied", "failing", "critical", "bad"]
    assert not any(found.values()), found


def test_what_the_test_does_not_give_is_not_taken_for_empty() -> None:
    found = faults("it: {assertions: [{type: equals, target: maps/deny.map, expected: ''}]}")

    (message,) = found["it"]
    assert "https://lists.example.com/deny.txt is not to be had: the test does not give it" in message
    assert "httpResources" in message


@pytest.mark.haproxy
def test_change_of_a_content_is_planned_and_valid() -> None:
    found = results(
        f"""\
        it:
          {GIVEN}
          previousHttpResources: [{{url: "https://lists.example.com/deny.txt", content: "192.0.2.2\\n"}}]
          assertions: [{{type: plan, outcome: runtime}}, {{type: haproxy_valid}}, {{type: deterministic}}]
        """,
        with_haproxy=True,
    )

    assert [checked.message for checked in found["it"].checked] == [""] * 3
