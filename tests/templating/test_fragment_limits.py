"""A fragment that takes too long or writes too much is its object's fault; all other objects are rendered."""

from typing import Any

import pytest

from haptic_trio.k8s.store import Store
from haptic_trio.templating.engine import Engine, RenderLimitError
from haptic_trio.templating.incremental.outputs import Recall
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.values import limits
from haptic_trio.templating.values.limits import RenderLimits
from haptic_trio.templating.views import ResourcesView
from tests.support.kubernetes import service

LIMITS = RenderLimits(
    seconds=10,
    output_bytes=100_000,
    fragment_seconds=1,
    fragment_bytes=10_000,
    namespace_bytes=25_000,
    namespace_rounds=25_000,
)


class Time:
    """Clocks that stand still while nothing asks for `work` or `wait`."""

    def __init__(self) -> None:
        self.wall = 1_000.0
        self.cpu = 0.0

    def work(self, seconds: float) -> str:
        """Use the CPU."""
        self.cpu += seconds
        return self.wait(seconds)

    def wait(self, seconds: float) -> str:
        """Let time pass, as on a machine that is busy with something else."""
        self.wall += seconds
        return ""


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    # Compiled templates import the clock when they are loaded.
    monkeypatch.setattr(limits, "clock", lambda: time.wall)
    monkeypatch.setattr(limits, "cpu_clock", lambda: time.cpu)
    return time


class Rendering:
    """One template over Services, rendered again and again."""

    def __init__(self, source: str, *objects: dict[str, Any], time: Time | None = None, **templates: str) -> None:
        self.store = Store("services", ["metadata.namespace", "metadata.name"])
        self.store.replace(objects)
        self._engine = Engine({"main": source, **templates}, limits=LIMITS)
        self.run: RenderRun = self._engine.start_run()
        self._context = {"resources": ResourcesView({"services": self.store}), "time": time}

    def __call__(self, *changed: dict[str, Any]) -> str:
        for resource in changed:
            metadata = resource["metadata"]
            self.store.upsert(resource)
            keys = metadata["namespace"], metadata["name"]
            take_changes(self.run, {"services": Touched((keys, keys[:1]), {(*keys, "Service"): resource})})
        self.run.restart(Recall())
        return self._engine.render("main", self._context, self.run).text

    @property
    def rejected(self) -> dict[str, str]:
        """Messages by names of quarantined objects."""
        return {rejection.subject.name: rejection.problem.message for rejection in self.run.rejections}


EACH = """\
{% each s in resources.services as "x" %}
{% for i in range(s.spec.n) %}
{% do time.work(0.01) %}
{% endfor %}
{{ s.metadata.name }}
{% endeach %}
"""
FRAGMENT = """\
{% for s in resources.services.list() %}
{% fragment "x" for s %}
{% for i in range(s.spec.n) %}
{% do time.work(0.01) %}
{% endfor %}
{{ s.metadata.name }}
{% endfragment %}
{% endfor %}
"""


@pytest.mark.parametrize("source", [EACH, FRAGMENT], ids=["each", "fragment"])
def test_an_object_that_takes_too_long_is_quarantined_and_the_others_are_rendered(source: str, passing: Time) -> None:
    rendering = Rendering(source, service("a", n=1), service("bad", n=90_000), service("c", n=1), time=passing)

    assert rendering().split() == ["a", "c"]

    (rejection,) = rendering.run.rejections
    problem = rejection.problem
    assert (problem.subject, problem.source) == ("Service default/bad", "main")
    assert "range(s.spec.n)" in problem.excerpt
    assert problem.message == "the fragment took longer than 1 s of CPU time"
    assert "templating.fragmentTimeout" in problem.hint
    assert passing.cpu < 1.5


def test_an_object_that_took_too_long_is_tried_again_only_when_something_changes(passing: Time) -> None:
    source = EACH.replace("range(s.spec.n)", "range(resources.services.get('default', 'size')[0].spec.size * s.spec.n)")
    objects = service("a", n=0), service("bad", n=1), service("size", size=90_000, n=0)
    rendering = Rendering(source, *objects, time=passing)
    rendering()
    spent = passing.cpu

    for number in range(5):
        rendering(service("a", n=0, number=number))

    assert passing.cpu == spent
    assert "bad" in rendering.rejected
    # What it looks up has changed.
    assert rendering(service("size", size=1, n=0)).split() == ["a", "bad", "size"]
    assert not rendering.rejected
    # It has changed itself.
    rendering(service("bad", n=90_000))
    assert "bad" in rendering.rejected
    assert rendering(service("bad", n=2)).split() == ["a", "bad", "size"]


def test_time_that_others_take_on_a_busy_machine_does_not_count(passing: Time) -> None:
    source = (
        EACH.replace("time.work(0.01)", "time.wait(100)") + "{% for i in range(9) %}{% do time.wait(100) %}{% endfor %}"
    )
    rendering = Rendering(source, service("a", n=50), time=passing)

    assert rendering().split() == ["a"]


@pytest.mark.parametrize("source", [EACH, FRAGMENT], ids=["each", "fragment"])
def test_fragments_may_take_longer_together_than_the_template_around_them(source: str, passing: Time) -> None:
    rendering = Rendering(source, *(service(f"s{number:03}", n=90) for number in range(100)), time=passing)

    assert len(rendering().split()) == 100
    assert passing.cpu > 8 * LIMITS.seconds


@pytest.mark.parametrize("source", [EACH, FRAGMENT], ids=["each", "fragment"])
def test_a_loop_outside_of_fragments_is_ended(source: str, passing: Time) -> None:
    source += "\n\n{% for a in range(99999) %}{% do time.work(0.01) %}{% endfor %}"
    rendering = Rendering(source, service("a", n=1), time=passing)

    with pytest.raises(RenderLimitError) as caught:
        rendering()

    (problem,) = caught.value.problems
    assert problem.message.startswith("template code outside of fragments took longer than 10")
    assert "templating.renderTimeout" in problem.hint
    assert problem.subject == ""
    assert passing.cpu < LIMITS.seconds + 1


def test_the_time_outside_of_fragments_grows_with_the_objects_that_are_listed(passing: Time) -> None:
    source = "{% for s in resources.services.list() %}{% do time.work(0.001) %}{% endfor %}"
    rendering = Rendering(source, *(service(f"s{number}") for number in range(15_000)), time=passing)

    rendering()

    assert passing.cpu > LIMITS.seconds


def test_a_fragment_inside_another_one_has_a_limit_of_its_own(passing: Time) -> None:
    source = """\
{% each s in resources.services as "x" if s.metadata.name == "outer" %}
{% for other in resources.services.list() %}
{% fragment "y" for other %}
{% for i in range(other.spec.n) %}{% do time.work(0.01) %}{% endfor %}
{{ other.metadata.name }}
{% endfragment %}
{% endfor %}
{% endeach %}
"""
    objects = (service(name, n=80) for name in ("a", "b", "outer"))
    rendering = Rendering(source, *objects, service("bad", namespace="bad", n=200), time=passing)

    assert rendering().split() == ["a", "b", "outer"]
    assert list(rendering.rejected) == ["bad"]


def test_a_fragment_that_is_slow_for_every_object_does_not_take_its_limit_for_each(passing: Time) -> None:
    objects = [service(f"s{number:03}", n=90_000) for number in range(200)]
    rendering = Rendering(EACH, *objects, service("z", n=0), time=passing)

    assert rendering().split() == ["z"]
    assert len(rendering.rejected) == 200
    assert passing.cpu < 12


def test_slow_objects_do_not_lower_the_limit_of_other_namespaces(passing: Time) -> None:
    slow = [service(f"s{number:03}", n=90_000) for number in range(20)]
    others = service("a", namespace="a", n=1), service("z", namespace="z", n=80)
    rendering = Rendering(EACH, *others, *slow, time=passing)

    assert rendering().split() == ["a", "z"]
    assert len(rendering.rejected) == 20


def test_a_namespace_cannot_hold_up_others_again_and_again(passing: Time) -> None:
    rendering = Rendering(EACH, service("bad", n=90_000), service("small", n=1), time=passing)
    rendering()
    spent = passing.cpu

    for number in range(10):
        rendering(service("bad", n=90_000 - number))

    assert "bad" in rendering.rejected
    assert passing.cpu < spent + 2
    assert rendering(service("small", n=2)).split() == ["small"]
    # After a while it gets all of the time again.
    passing.wait(100)
    assert rendering(service("bad", n=90)).split() == ["bad", "small"]


def test_what_is_used_up_in_one_operation_counts_as_well(passing: Time) -> None:
    source = '{% each s in resources.services as "x" %}{{ s.metadata.name }} {% do time.work(s.spec.n) %}{% endeach %}'
    rendering = Rendering(source, service("a", n=0), service("bad", n=3), time=passing)

    assert rendering().split() == ["a"]


WRITING = """\
{% each s in resources.services as "x" %}
{% for i in range(s.spec.n) %}
0123456789
{% endfor %}
{{ s.metadata.name }}
{% endeach %}
"""
DIGITS = "0123456789"
BLOCK = WRITING.replace("{% for", "{% set text %}{% for", 1).replace("endfor %}", "endfor %}{% endset %}{{ text }}", 1)
TOO_MUCH = {
    "text": WRITING,
    "a block": BLOCK,
    "a file": WRITING.replace(DIGITS, "{% do files.file(s.metadata.name ~ i, 'x' * 11) %}"),
    "multiplied": WRITING.replace(DIGITS, "").replace("{{ s", "{{ 'a' * (11 * s.spec.n) }} {{ s"),
    "joined": WRITING.replace(DIGITS, "{{ ([s.metadata.name] * (1000 * s.spec.n)) | join }}"),
    "a range": WRITING.replace("range(s.spec.n)", "range(s.spec.n * 200)").replace(DIGITS, ""),
    "recursion": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    + WRITING.replace(DIGITS, "{{ m(n=s.spec.n) }}"),
}


@pytest.mark.parametrize("way", TOO_MUCH)
def test_an_object_that_writes_too_much_is_quarantined_and_the_others_are_rendered(way: str) -> None:
    rendering = Rendering(TOO_MUCH[way], service("a", n=1), service("bad", n=1_000), service("c", n=1))

    text = rendering()

    assert (list(rendering.rejected), "bad" in text) == (["bad"], False)
    assert text.rstrip().endswith("c")
    assert rendering.run.rejections[0].problem.line


def test_objects_of_one_namespace_share_a_limit_and_those_of_others_are_rendered() -> None:
    greedy = [service(f"g{number}", namespace="greedy", n=700) for number in range(5)]
    rendering = Rendering(WRITING, *greedy, service("a", namespace="alpha", n=700), service("z", namespace="z", n=700))

    text = rendering()

    served = [word for word in text.split() if not word.isdigit()]
    assert served == ["a", "g0", "g1", "g2", "z"]
    assert set(rendering.rejected) == {"g3", "g4"}
    assert "namespace greedy grew beyond 25,000 bytes" in rendering.rejected["g3"]
    # A change of one that is served needs no more room than before.
    rendering(service("g2", namespace="greedy", n=699))
    assert set(rendering.rejected) == {"g3", "g4"}
    # Room that becomes free is used by the next render at the latest.
    rendering(service("g1", namespace="greedy", n=1))
    rendering()
    assert set(rendering.rejected) == {"g4"}


HASH = "$5$abcdefgh$" + "a" * 43
CHEAP = "$1$abcdefgh$" + "a" * 22
HASHES = """\
{% each s in resources.services as "x" %}
{% for user, hashed in s.spec.users | htpasswd %}
{{ user }} {{ hashed }}
{% endfor %}
{% set one = s.spec.one | password("joe") %}
{{ s.metadata.name }}
{% endeach %}
"""


def with_users(name: str, count: int, namespace: str) -> dict[str, Any]:
    # The usual 5,000 rounds each, and one password more.
    users = "\n".join(f"u{number}:{HASH}" for number in range(count))
    return service(name, namespace=namespace, users=users, one=HASH)


def test_password_hashes_of_one_namespace_share_a_limit_and_objects_of_others_are_rendered() -> None:
    greedy = [with_users(f"g{number}", 1, "greedy") for number in range(4)]
    rendering = Rendering(HASHES, *greedy, with_users("a", 4, "alpha"), with_users("z", 5, "zeta"))

    served = [word for word in rendering().split() if len(word) == 1 or word.startswith("g")]
    assert served == ["a", "g0", "g1"]
    assert set(rendering.rejected) == {"g2", "g3", "z"}
    assert "namespace greedy has password hashes of more than 25,000 rounds" in rendering.rejected["g2"]
    # A change of one that is served needs no more room than before.
    rendering({**greedy[1], "metadata": {**greedy[1]["metadata"], "labels": {"a": "b"}}})
    assert set(rendering.rejected) == {"g2", "g3", "z"}
    # Room that becomes free is used by the next render at the latest.
    rendering(with_users("z", 4, "zeta"))
    rendering({"kind": "Service", "metadata": greedy[1]["metadata"], "spec": {"users": f"u:{CHEAP}", "one": CHEAP}})
    rendering()
    assert set(rendering.rejected) == {"g3"}


def test_text_of_many_fragments_is_not_text_outside_of_fragments() -> None:
    source = (
        "{% for s in resources.services.list() %}{% fragment 'x' for s %}{{ 'a' * 9000 }} {% endfragment %}{% endfor %}"
    )
    objects = (service("s", namespace=f"n{number}") for number in range(50))
    rendering = Rendering("{% set all %}" + source + "{% endset %}{{ all }}", *objects)

    assert len(rendering()) > 4 * LIMITS.output_bytes
