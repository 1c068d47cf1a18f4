"""The part of a run that decisions about quarantined objects read and change."""

from typing import Protocol

from haptic_trio.templating.incremental.dependencies import DependencyIndex
from haptic_trio.templating.incremental.outputs import FragmentOutput, Recall
from haptic_trio.templating.incremental.records import ObjectId, Root
from haptic_trio.templating.incremental.settling.contested_files import ContestedFiles
from haptic_trio.templating.values.subjects import FragmentKey, Rejection
from haptic_trio.templating.values.versions import Versioned


class RunState(Protocol):
    """State of a run that decides about quarantine; see `run.RenderRun`, which has it."""

    roots: dict[str, Root]
    index: DependencyIndex
    recall: Recall
    produced: Versioned[FragmentKey, FragmentOutput]
    contested: ContestedFiles

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """The fragments that failed or are rejected."""
        ...

    def forget_rejections(self) -> None:
        """Drop the cached `rejections`."""
        ...

    def touch_object(self, found: ObjectId) -> None:
        """Make all fragments of an object pending."""
        ...
