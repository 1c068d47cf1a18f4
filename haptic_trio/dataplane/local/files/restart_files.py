"""Preparation of the files that HAProxy loads when it is started again without a deployment."""

from haptic_trio.dataplane.endpoint import NAMED_FILES
from haptic_trio.dataplane.local.files.generation_directory import JOURNAL_NAME, MANIFEST_NAME
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.errors import HapticError, text_of
from haptic_trio.logs import get_logger

log = get_logger("supervisor")


class DamagedFilesError(HapticError):
    """No generation on disk is complete; the next deployment replaces them."""


def prepare_restart(files: GenerationFiles, *, instance: str) -> bool:
    """Make `current` the newest complete generation, with the recorded patches; return whether there were patches.

    No process may run. Without space on the disk the patches are left out.
    Blocks; raises DamagedFilesError, and OSError.
    """
    was_patched = bool(files.read_patches())
    try:
        files.absorb()
    except OSError as exc:
        log.warning("haproxy starts without its last runtime changes", instance=instance, error=text_of(exc))
        files.abandon(clear=False)
    damaged = find_damaged(files)
    if damaged:
        # With a truncated map HAProxy would start, and answer wrongly.
        if not files.roll_back() or find_damaged(files):
            names = ", ".join(damaged[:NAMED_FILES])
            raise DamagedFilesError(f"files of its last generation are damaged: {names}; the next deployment is loaded")
        log.warning("files are damaged, rolling back to the previous generation", instance=instance, files=damaged)
    return was_patched


def find_damaged(files: GenerationFiles) -> tuple[str, ...]:
    """Return the files of the current generation that are not as written; none if its manifest is unreadable."""
    # Another version of haptic-trio may have written the manifest or the journal of patches.
    return tuple(path for path in files.find_edited() if path not in {MANIFEST_NAME, JOURNAL_NAME})
