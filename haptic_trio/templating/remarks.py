"""Warnings that templates attach to an object: it is served, but differently than its owner may expect.

A remark is part of what a fragment gives, as its text is: kept with it, given
again with every render, and gone once the fragment does not make it any more.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from haptic_trio.templating.filters.emit import FORBIDDEN, Emitted, TemplateFaultError
from haptic_trio.templating.incremental.run import current_run
from haptic_trio.templating.values.subjects import Concern, Remark, subject_of

_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}").fullmatch
_LONGEST: Final = 400
MOST_REMARKS: Final = 10
"""Of one object's part; what more it has to say is left out."""


def remark(resource: Any, reason: Any, message: Any, if_refused: Any = None) -> Emitted:
    """Have the owner of *resource* told *message*; *reason* is one word in upper camel case. Gives no text.

    Of a fragment that fails nothing is told but that. With *if_refused* it is
    the other way round: it is told only if the fragment fails, or HAProxy
    refuses what it gives, with the reason, and with *if_refused*, which says
    what is so then; for owners of other objects that need this one. A message
    must not hold what a Secret does.
    """
    if not isinstance(resource, Mapping):
        raise TemplateFaultError("a remark is about something that is not an object")
    if not isinstance(reason, str) or not _REASON(reason):
        raise TemplateFaultError("the reason of a remark is not one word in upper camel case", "such as NoEndpoints")
    if not isinstance(message, str) or not message:
        raise TemplateFaultError("the message of a remark is not text")
    run = current_run()
    if run.importing:
        raise TemplateFaultError("a remark is made by a template that is imported", "make it in a macro")
    subject = msgspec.structs.replace(subject_of(resource), resource_version="")
    found = Remark(subject, str(reason), _shortened(str(message)))
    remarks, concerns = run.trace.remarks, run.trace.concerns
    if if_refused is not None:
        if not isinstance(if_refused, str) or not if_refused:
            raise TemplateFaultError("what is so if it is refused is not text", 'such as "nothing of it is served"')
        if len(concerns) < MOST_REMARKS:
            concerns.append(Concern(found, str(if_refused)))
    elif len(remarks) < MOST_REMARKS:
        remarks[found] = None
    return Emitted("")


def remark_of(concern: Concern, problem: str, *, has_stand_in: bool) -> Remark:
    """Return what is said of *concern* about a fragment that is refused for *problem*."""
    instead = "its last good version is served" if has_stand_in else concern.otherwise
    message = _shortened(f"{concern.remark.message}: {problem}; {instead}")
    return msgspec.structs.replace(concern.remark, message=message)


def _shortened(message: str) -> str:
    text = FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", message)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
