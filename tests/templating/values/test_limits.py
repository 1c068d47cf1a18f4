"""A runaway template ends soon, with its place; nothing that a template can say takes longer."""

import time
from collections import deque

import pytest

from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.templating.engine import Engine, RenderLimitError
from haptic_trio.templating.values import limits
from haptic_trio.templating.values.limits import RenderLimits
from tests.templating.rendering import render

TIGHT = RenderLimits(seconds=0.3, output_bytes=1_000_000)


def stopped(source: str, /, limits: RenderLimits = TIGHT, **context: object) -> Problem:
    """Return the limit that *source* meets, within reasonable time."""
    engine = Engine({"main": source, "self": "{% include 'self' %}", "forked": FORKED, "m": MACROS}, limits=limits)
    began = time.monotonic()
    with pytest.raises(RenderLimitError) as caught:
        engine.render("main", context, engine.start_run())
    assert time.monotonic() - began < limits.seconds + 3
    (problem,) = caught.value.problems
    return problem


FORKED = "{% if depth %}{% set depth = depth - 1 %}{% include 'forked' %}{% include 'forked' %}{% endif %}"
MACROS = "{% macro twice(n) %}{% if n %}{{ twice(n - 1) }}{{ twice(n - 1) }}{% endif %}{% endmacro %}"
NESTED = "\n{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}"
ENDED = "{% endfor %}{% endfor %}{% endfor %}"

TIME = {
    "nested loops": f"{NESTED}{ENDED}",
    "nested loops in a macro": "{% macro m() %}" + NESTED + ENDED + "{% endmacro %}\n{{ m() }}",
    "nested loops in a set block": "\n{% set x %}" + NESTED + ENDED + "{% endset %}",
    "nested loops that skip": "\n{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}"
    "{% continue %}{% endfor %}{% endfor %}{% endfor %}",
    "filtered loops": "\n{% for a in range(99999) if range(99999) | select('eq', -1) | list %}{% endfor %}",
    "mapped filters": "\n{% for a in range(99999) if range(99999) | map('string') | map('length') | sum < 0 %}"
    "{% endfor %}",
    "recursive macro, twice": "\n{% import 'm' as m %}{{ m.twice(60) }}",
    "recursive include, twice": "\n{% set depth = 60 %}{% include 'forked' %}",
    "recursive loop": "\n{% set t = [1, 2] %}{% for a in t recursive %}"
    "{% if loop.depth < 60 %}{{ loop(t) }}{% endif %}{% endfor %}",
}  # fmt: skip


@pytest.mark.parametrize("way", TIME)
def test_time_is_up(way: str) -> None:
    problem = stopped(TIME[way])
    assert "longer than 0.3 s" in problem.message
    assert (problem.source, problem.line) != ("", 0)


def grown(start: str, step: str) -> str:
    """Return a template that applies *step* to `n.x` again and again."""
    return "{% set n = namespace(x=" + start + ") %}{% for a in range(99) %}{% set n.x = " + step + " %}{% endfor %}"


PIECES = "{% for a in range(99999) %}0123456789012345678{% endfor %}"

SIZE = {
    "output": PIECES,
    "output of a macro": "{% macro m() %}" + PIECES + "{% endmacro %}{{ m() }}",
    "output of set blocks": "{% set n = namespace(x='') %}{% for a in range(99) %}"
    "{% set x %}{{ n.x }}{{ n.x }}a{% endset %}"
    "{% set n.x = x %}{% endfor %}",
    "string multiplied": "{{ 'a' * 10 ** 9 }}",
    "string multiplied from the right": "{{ (10 ** 9) * 'a' }}",
    "string doubled by ~": grown("'aaaaaaaa'", "n.x ~ n.x"),
    "string doubled by +": grown("'aaaaaaaa'", "n.x + n.x"),
    "string doubled by join": grown("'aaaaaaaa'", "[n.x, n.x] | join"),
    "string doubled by replace": grown("'aaaaaaaa'", "n.x | replace('a', 'aa')"),
    "string doubled by method": grown("'aaaaaaaa'", "n.x.replace('a', 'aa')"),
    "big join": "{{ range(99999) | join(' and a long separator ') }}",
    "indent": grown("'a\\n'", "(n.x ~ n.x) | indent(200)"),
    "list multiplied": "{{ ([1] * 10 ** 9) | length }}",
    "list doubled": grown("[1]", "n.x + n.x"),
    "range": "{% for a in range(10 ** 9) %}{% endfor %}",
    "range backwards": "{{ range(10 ** 9, 0, -1) | list | length }}",
    "range beyond any machine": "{% for a in range(10 ** 30) %}{% endfor %}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "product": grown("9", "n.x * n.x"),
    "width of %": "{{ '%1000000000d' % 1 }}",
    "width of format": "{{ '%1000000000d' | format(1) }}",
    "width by data": "{{ '%*d' | format(1000000000, 1) }}",
    "precision": "{{ '%.1000000000f' | format(1.0) }}",
    "named fields of format": "{{ ('%(' * 400000) | format(1) }}",
    "named fields of a remainder": "{{ ('%(' * 400000) % 1 }}",
    "recursive macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "recursive include": "{% include 'self' %}",
}  # fmt: skip


@pytest.mark.parametrize("way", SIZE)
def test_size_and_depth_are_bounded(way: str) -> None:
    problem = stopped(SIZE[way], RenderLimits(seconds=20, output_bytes=1_000_000))
    assert "longer than" not in problem.message
    assert problem.source in ("main", "self")
    assert problem.line == 1
    assert problem.excerpt


FAULTS = ["{{ 'a'.ljust(10**9) }}", "{{ '{:999999999}'.format(1) }}", "{{ 'a' | indent(10**9) }}",
          "{{ [1] | batch(10**9, 0) | list }}", "{{ 1.5 | round(10**9) }}", "{{ 5.to_bytes }}{{ n.to_bytes(10**9) }}",
          "{{ [1] | tojson(indent=10**9) }}", "{{ 'a' | center(10**9) }}"]  # fmt: skip


@pytest.mark.parametrize("source", FAULTS)
def test_what_could_grow_otherwise_is_not_there(source: str) -> None:
    with pytest.raises(ProblemsError):
        render(source, n=5)


@pytest.mark.slow
def test_the_time_of_a_run_is_that_of_all_its_renders() -> None:
    loops = "{% for a in range(500) %}{% for b in range(500) %}{% endfor %}{% endfor %}"
    names = [f"file{number}" for number in range(1_000)]
    engine = Engine(dict.fromkeys(names, loops), limits=RenderLimits(seconds=0.3))
    run = engine.start_run()
    engine.render(names[0], {}, run)
    with pytest.raises(RenderLimitError):
        deque((engine.render(name, {}, run) for name in names), maxlen=0)


def test_the_output_outside_of_fragments_is_limited_with_its_files() -> None:
    source = "{% do files.file('a', 'x' * 600000) %}{% for a in range(SIZE // 10) %}0123456789{% endfor %}"
    small, large = source.replace("SIZE", "300000"), source.replace("SIZE", "600000")
    engine = Engine({"small": small, "large": large}, limits=RenderLimits(output_bytes=1_000_000))
    engine.render("small", {}, engine.start_run())
    with pytest.raises(RenderLimitError, match="grew beyond 1,000,000 bytes"):
        engine.render("large", {}, engine.start_run())


def test_an_engine_is_usable_after_a_limit() -> None:
    engine = Engine({"bad": "{{ 'a' * 10**9 }}", "good": "ok"}, limits=TIGHT)
    with pytest.raises(RenderLimitError):
        engine.render("bad", {}, engine.start_run())
    assert engine.render("good", {}, engine.start_run()).text == "ok"


def test_loop_that_runs_on_is_seen_by_other_threads_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(limits, "clock", lambda: now)
    meter = limits.Meter(RenderLimits(seconds=60))
    meter.switch_outside()
    for _ in range(10):
        now += 1.1
        for _ in range(1000):
            meter.tick()

    assert meter.steps == 10
