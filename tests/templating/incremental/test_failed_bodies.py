"""The body of a fragment that fails is not rendered again in the same render while nothing has changed for it."""

import pytest

from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.templating.incremental.recorder import Recorder
from haptic_trio.templating.values.subjects import ObjectWarning
from tests.pipeline.test_incremental import WATCHED
from tests.support.components.pipeline import config_of, stores_of
from tests.support.kubernetes import service

INSIDE = """\
{% each s in resources.services as "outer" apart %}
{% for other in resources.others.list() %}
{% fragment "inner" for other %}
# {{ other.metadata.name }} {{ "x" * other.spec.size }}
{% do warn(other, "Counted", "size " ~ other.spec.size) %}
{% if other.spec.fails %}{% do fail("broken") %}{% endif %}
{% endfragment %}
{% endfor %}
{% endeach %}
"""


class Rendering:
    """A renderer of one object inside the turn of another; counts how often its newest version is rendered."""

    def __init__(self, template: str, monkeypatch: pytest.MonkeyPatch) -> None:
        config = config_of(template, watchedResources=WATCHED, templating={"maxNamespaceBytes": 500})
        self._renderer, self._quarantine = Renderer(config), Quarantine()
        self._stores: Stores = stores_of(config)
        self._stores["services"].upsert(service("web"))
        self.count = 0
        self.size = 0
        add_warning = Recorder.add_warning

        def counted(recorder: Recorder, warning: ObjectWarning) -> None:
            self.count += warning.message == f"size {self.size}"
            add_warning(recorder, warning)

        monkeypatch.setattr(Recorder, "add_warning", counted)

    def __call__(self, size: int, *, fails: bool = False) -> Rendered:
        metadata = {"namespace": "tenant", "name": "o", "resourceVersion": f"{size} {fails}"}
        self._stores["others"].upsert(
            {"kind": "ConfigMap", "metadata": metadata, "spec": {"size": size, "fails": fails}}
        )
        self.count, self.size = 0, size
        rendered = self._renderer.render_here(self._stores, self._quarantine.recall())
        self._quarantine.take(rendered.serial, rendered.changed, is_new=rendered.is_new)
        if not rendered.rejections:
            self._quarantine.accept(rendered.serial, ())
        return rendered


@pytest.mark.parametrize("size", [700, 10])
def test_a_body_that_fails_inside_the_turn_of_another_object_is_rendered_twice_at_most(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (None, 20):
        rendering = Rendering(INSIDE, monkeypatch)
        if first is not None:
            rendering(first)
        rendered = rendering(size, fails=size < 500)

        assert [str(one.subject) for one in rendered.rejections] == ["ConfigMap tenant/o"]
        assert 0 < rendering.count <= 2
        # It is rendered again when it changes.
        assert rendering(30).rejections == ()
