"""Runs, as decisions about quarantined objects see them."""

from haptic_trio.templating.engine import Engine
from haptic_trio.templating.incremental.settling.run_state import RunState


def test_a_run_decides_about_the_files_and_objects_of_its_own_records() -> None:
    run = Engine({}, snippets={}).start_run()
    state: RunState = run

    assert (state.rejections, dict(state.roots)) == ((), {})
    state.forget_rejections()
    state.touch_object(("default", "web", "Ingress"))
    assert not run.quarantined
