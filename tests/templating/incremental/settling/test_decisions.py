"""Renders end, even if decisions about objects contradict each other."""

import pytest

from haptic_trio.pipeline import compiled
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Renderer
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.incremental.settling.decisions import settle_files
from tests.support.components.pipeline import config_of, stores_of
from tests.support.kubernetes import service

TEMPLATE = "global\n{% each service in resources.services %}\n# {{ ident(service.metadata.name) }}\n{% endeach %}\n"


def test_decisions_that_never_agree_fail_the_render_and_not_the_ones_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(TEMPLATE)
    stores = stores_of(config)
    for name in ("a", "b", "c"):
        stores["services"].upsert(service(name))
    renderer = Renderer(config)
    turns = 0

    def never_agree(run: RenderRun) -> bool:
        nonlocal turns
        turns += 1
        run.touch_object(("default", "ab"[turns % 2], "Service"))
        return True

    with monkeypatch.context() as patched:
        patched.setattr(compiled, "settle_files", never_agree)
        with pytest.raises(RejectedError) as caught:
            renderer.render_here(stores)

    (problem,) = caught.value.problems
    assert (caught.value.phase, turns) == ("render", 201)
    assert (
        problem.message == "the render does not end: after 201 rounds, decisions about Service default/b still change"
    )
    assert renderer.render_here(stores).text == "global\n# a\n# b\n# c\n"


def test_decisions_about_many_objects_one_after_the_other_are_no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(TEMPLATE)
    stores = stores_of(config)
    names = [f"s{number:03}" for number in range(300)]
    for name in names:
        stores["services"].upsert(service(name))
    waiting = list(names)

    def decide_one(run: RenderRun) -> bool:
        if waiting:
            run.touch_object(("default", waiting.pop(), "Service"))
            return True
        return settle_files(run)

    monkeypatch.setattr(compiled, "settle_files", decide_one)

    assert Renderer(config).render_here(stores).text.count("# s") == 300
    assert not waiting
