import trio

from haptic_trio.config.load import load_config
from haptic_trio.validation_tests.cases import find_cases
from haptic_trio.validation_tests.coverage import Branch, TemplateCoverage, line_ranges, measure, total
from haptic_trio.validation_tests.gate import suite_of
from haptic_trio.validation_tests.runner import Runner, RunOptions
from haptic_trio.validation_tests.tracing import TemplateTracer, slowest_of
from tests.validation_tests.builders import config_map

BASE = """\
templating: {libraries: [], extraContext: {level: 1, names: [a, b]}}
templateSnippets:
  part:
    template: |
      {% macro shout(text) %}
      # loud
      {% if text == "a" %}
      # a
      {% else %}
      # other
      {% endif %}
      {% endmacro %}
  unused:
    template: |
      never
      {{ level | integer }}
haproxyConfig:
  template: |
    {% from "part" import shout with context %}
    global
    {% if level > 1 %}
        maxconn {{ level | integer }}
    {% elif level == 1 %}
        # one
    {% endif %}
    {% for name in names if name != "z" %}
    {{ shout(name) }}
    {% endfor %}
"""


def trace(tests: str, *, lines: bool = True, base: str = BASE) -> TemplateTracer:
    tracer = TemplateTracer(lines=lines)
    runner = Runner(RunOptions(binary=None), tracing=tracer.tracing)
    cases = find_cases([suite_of(load_config(config_map(tests, base=base), None))])
    trio.run(runner.run, cases, lambda _result: None)
    return tracer


def covered(tests: str) -> dict[str, TemplateCoverage]:
    return {one.name: one for one in measure(trace(tests))}


ONE = "one: {assertions: [{type: contains, text: global}]}\n"


def test_lines_and_ways_that_no_test_renders_are_named() -> None:
    found = covered(ONE)

    main = found["haproxy.cfg"]
    assert main.missing_lines == (4,)
    # The elif was always true, and the loop left nothing out.
    assert set(main.missing_branches) == {Branch(3, "true"), Branch(5, "false"), Branch(8, "false")}
    assert found["part"].missing_lines == ()
    assert found["part"].missing_branches == ()
    assert found["unused"].missing_lines == (2,)
    assert found["unused"].covered == 0


def test_more_tests_cover_more() -> None:
    less = measure(trace(ONE))
    more = measure(
        trace(ONE + "two: {extraContext: {level: 2, names: [z]}, assertions: [{type: contains, text: maxconn 2}]}\n")
    )

    assert total(more) > total(less)
    main = next(one for one in more if one.name == "haproxy.cfg")
    assert (main.missing_lines, main.missing_branches) == ((), (Branch(5, "false"),))


def test_times_are_taken_for_each_template_that_ran() -> None:
    tracer = trace(ONE, lines=False)

    names = [name for name, _ in slowest_of(tracer, 5)]
    assert set(names) == {"haproxy.cfg", "part"}
    assert all(timing.calls and timing.seconds > 0 for timing in tracer.timings.values())
    assert slowest_of(tracer, 1)[0][0] == names[0]
    assert not any(tracer.executed.values())


def test_ranges_are_written_short() -> None:
    assert line_ranges((1, 2, 3, 7, 9, 10)) == "1-3, 7, 9-10"
    assert line_ranges(()) == ""


LOOPS = """\
templating: {libraries: [], extraContext: {names: [a, b]}}
haproxyConfig:
  template: |
    global
    {% for name in names %}
    {% if name %}
        # named
    {% endif %}
    {% else %}
        # nobody
    {% endfor %}
    {% set first = names | first %}
    {% if first == "a" %}
        # a
    {% endif %}
"""


def test_conditions_on_variables_of_a_loop_and_the_else_of_a_loop_count() -> None:
    less = {one.name: one for one in measure(trace(ONE, base=LOOPS))}["haproxy.cfg"]
    empty = "two: {extraContext: {names: []}, assertions: [{type: contains, text: nobody}]}\n"
    blank = "three: {extraContext: {names: ['']}, assertions: [{type: contains, text: global}]}\n"
    more = {one.name: one for one in measure(trace(ONE + empty + blank, base=LOOPS))}["haproxy.cfg"]

    assert set(less.missing_branches) == {Branch(2, "empty"), Branch(3, "false"), Branch(10, "false")}
    assert more.missing_branches == ()
