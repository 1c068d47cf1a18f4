"""Conditions of the Kubernetes API, without times."""

from typing import Any


def condition(kind: str, status: bool | None, reason: str, message: str = "", *, generation: int = 0) -> dict[str, Any]:
    """Return a condition; *status* None is `Unknown`. The writer adds `lastTransitionTime`."""
    text = "Unknown" if status is None else "True" if status else "False"
    return {
        "type": kind,
        "status": text,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }
