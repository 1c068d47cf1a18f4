"""Limits of a namespace count what a fragment outputs for its own object, not what fragments inside do for others."""

import re
from typing import Any

import pytest

from haptic_trio.k8s.store import Store
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.incremental.outputs import Recall
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.values.limits import RenderLimits
from haptic_trio.templating.views import ResourcesView
from tests.support.kubernetes import service

SERVERS = "{% for n in range(COUNT) %}{{ n }}\n    server s{% endfor %}"
TABLE = "\n    stick-table type ip size COUNT\n"
BYTES = "{{ 'x' * COUNT }}"

EACH = """\
{% each s in resources.services as "outer" apart %}
{% if s.spec.fails | default(false) %}{% do fail("broken") %}{% endif %}
own-{{ s.metadata.name }} OWN
{% for other in resources.routes.get(s.metadata.name) %}
{% fragment "inner" for other %}
inner-{{ other.metadata.name }} INNER
{% endfragment %}
{% endfor %}
{% endeach %}
"""


class Rendering:
    """Services of `web`, each with fragments of the routes of `evil` that name it inside."""

    def __init__(self, limits: RenderLimits, *services: dict[str, Any], own: str, inner: str, routes: int = 1) -> None:
        self.services = Store("services", ["metadata.namespace", "metadata.name"])
        self.services.replace(services)
        self.routes = Store("routes", ["spec.to"])
        made = [service(f"r-{s['metadata']['name']}-{n}", namespace="evil") for s in services for n in range(routes)]
        self.routes.replace([{**r, "spec": {"to": r["metadata"]["name"].split("-")[1]}} for r in made])
        self._engine = Engine({"main": EACH.replace("OWN\n", f"{own}\n").replace("INNER", inner)}, limits=limits)
        self.run: RenderRun = self._engine.start_run()
        views = {"services": self.services, "routes": self.routes}
        self._context = {"resources": ResourcesView(views), "paths": self.run.paths}

    def __call__(self, *changed: dict[str, Any], recall: Recall | None = None) -> str:
        for resource in changed:
            self.services.upsert(resource)
            keys = resource["metadata"]["namespace"], resource["metadata"]["name"]
            take_changes(self.run, {"services": Touched((keys, keys[:1]), {(*keys, "Service"): resource})})
        self.run.restart(recall or Recall())
        return self._engine.render("main", self._context, self.run).text

    @property
    def rejected(self) -> list[str]:
        """Names of objects with a failed fragment."""
        return sorted({rejection.subject.name for rejection in self.run.rejections})


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (SERVERS, RenderLimits(namespace_servers=100)),
        (TABLE, RenderLimits(namespace_table_entries=100)),
        (BYTES, RenderLimits(namespace_bytes=150)),
        (BYTES, RenderLimits(fragment_bytes=150)),
    ],
    ids=["servers", "table-entries", "bytes", "fragment-bytes"],
)
def test_the_output_of_a_fragment_inside_counts_for_its_own_object_alone(text: str, limits: RenderLimits) -> None:
    own, inner = text.replace("COUNT", "60"), text.replace("COUNT", "80")
    rendering = Rendering(limits, service("a", namespace="web"), own=own, inner=inner)

    shown = rendering()

    assert rendering.rejected == []
    assert "own-a" in shown
    assert "inner-r-a-0" in shown


def test_fragments_inside_share_the_limit_of_their_namespace() -> None:
    limits = RenderLimits(namespace_servers=100)
    services = [service(name, namespace="web") for name in "abc"]
    inner = SERVERS.replace("COUNT", "40")
    rendering = Rendering(limits, *services, own=SERVERS.replace("COUNT", "30"), inner=inner)

    shown = rendering()

    assert rendering.rejected == ["r-c-0"]
    assert re.findall("own-.|inner-r-.", shown) == ["own-a", "inner-r-a", "own-b", "inner-r-b", "own-c"]


def test_a_fallback_counts_with_the_text_of_the_fragments_that_were_inside() -> None:
    limits = RenderLimits(namespace_servers=100)
    rendering = Rendering(
        limits, service("a", namespace="web"), own=SERVERS.replace("COUNT", "20"), inner=SERVERS.replace("COUNT", "70")
    )
    rendering()
    recall = Recall(valid=dict(rendering.run.produced.snapshot()))

    shown = rendering(service("a", namespace="web", fails=True), recall=recall)
    assert "inner-r-a-0" in shown
    rendering.run.changed.clear()
    again = rendering(service("a", namespace="web", fails=True, again=1), recall=recall)
    # The fallback is the same one as in the render before.
    assert (again, rendering.run.changed) == (shown, set())
    # 90 of 100 servers are those of the fallback.
    rendering(service("b", namespace="web"), recall=recall)

    assert rendering.rejected == ["a", "b"]


def test_the_text_of_fragments_inside_is_bounded_by_the_limit_of_a_namespace() -> None:
    limits = RenderLimits(fragment_bytes=150, namespace_bytes=500)
    rendering = Rendering(limits, service("a", namespace="web"), own="", inner="", routes=50)

    rendering()

    assert "a" in rendering.rejected
