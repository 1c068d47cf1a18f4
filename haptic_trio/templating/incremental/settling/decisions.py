"""Decisions for which everything must have been rendered; what they change renders again in the same render."""

from functools import partial

from haptic_trio.templating.incremental.records import id_of_key
from haptic_trio.templating.incremental.run import RenderRun


def settle_rounds(run: RenderRun) -> bool:
    """Decide again whose password hashes find room; True if fragments have to be rendered again for that."""
    keys = run.shares.overall.settle(run.recall, run.rejections)
    if keys:
        run.touch_fragments(set(keys))
    for key in keys:
        run.quarantined.retry(id_of_key(key))
    return bool(keys)


def settle_files(run: RenderRun) -> bool:
    """Decide again which objects may have the files that they want; True if fragments have to be rendered again."""
    candidates = partial(run.quarantined.usable_fallbacks, run)
    objects, others = run.contested.settle(run.rejections, run.quarantined.staying, candidates)
    for found in objects:
        run.touch_object(found)
        run.quarantined.retry(found)
    run.quarantined.choose_again(others)
    return bool(objects)
