"""Reviews of the controller's own ConfigMap.

An invalid configuration is never used; the review reports its problems to the
author at once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
import trio

from haptic_trio import __version__
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.review.dry_run_object import DryRunError
from haptic_trio.webhook.review import Answer, Request

MOST_PROBLEMS: Final = 10
VERSION_LABEL: Final = "app.kubernetes.io/version"
_CONTENT: Final = ("data", "binaryData")

Check = Callable[[Resource], tuple[Problem, ...]]
"""Returns the problems of a ConfigMap; runs in a worker thread. Raises `DryRunError` if no review is possible."""


class ConfigurationReviews:
    """Reviews one ConfigMap at a time by *check*."""

    def __init__(self, namespace: str, name: str, check: Check) -> None:
        self._namespace = namespace
        self._name = name
        self._check = check
        # An abandoned thread keeps its token until it ends, so that at most one thread works.
        self._one_at_a_time = trio.CapacityLimiter(1)

    def concern(self, request: Request) -> bool:
        """Whether *request* is about the controller's own ConfigMap."""
        kind = request.resource
        ref = request.ref
        return (
            (kind.group, kind.version, kind.resource) == ("", "v1", "configmaps")
            and (ref.namespace, ref.name) == (self._namespace, self._name)
        )  # fmt: skip

    async def review(self, request: Request) -> Answer:
        """Return the answer to *request*; raises `DryRunError` if no review is possible."""
        wanted = request.object
        if wanted is None:
            warning = (
                f"{request.ref}: the deployed configuration stays, but no controller can start without this ConfigMap"
            )
            return Answer(warnings=(warning,))
        if _content_of(wanted) == _content_of(request.old_object):
            return Answer()
        version = _version_of(wanted)
        if version not in {"", __version__}:
            # During an upgrade or rollback; only that version knows its fields.
            raise DryRunError(f"it is for haptic-trio {version}; this is haptic-trio {__version__}")
        problems = await trio.to_thread.run_sync(
            partial(self._check, wanted), limiter=self._one_at_a_time, abandon_on_cancel=True
        )
        if not problems:
            return Answer()
        return Answer(allowed=False, message=_message(request, problems))


def _content_of(config_map: Resource | None) -> list[Any]:
    return [(config_map or {}).get(key) for key in _CONTENT] if config_map else []


def _version_of(config_map: Resource) -> str:
    labels = (config_map.get("metadata") or {}).get("labels")
    version = labels.get(VERSION_LABEL) if isinstance(labels, dict) else None
    return version if isinstance(version, str) else ""


def _message(request: Request, problems: tuple[Problem, ...]) -> str:
    lines = [_sentence(problem, str(request.ref)) for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"and {len(problems) - MOST_PROBLEMS} more")
    return "\n".join([f"{request.ref} is not a valid configuration:", *(f"- {line}" for line in lines)])


def _sentence(problem: Problem, source: str) -> str:
    if problem.source != source:
        return str(problem)
    line = f"line {problem.line} of `config`: " if problem.line else ""
    return f"{line}{msgspec.structs.replace(problem, source='', line=0, column=0)}"
