"""Warnings that templates attach to an object: it is served, but differently than its owner may expect.

A remark is part of what a fragment gives, as its text is: kept with it, given
again with every render, and gone once the fragment does not make it any more.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.subjects import Concern, Remark, message_of, subject_of
from haptic_trio.templating.values.text import Emitted

_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}").fullmatch


def remark(resource: Any, reason: Any, message: Any, if_refused: Any = None) -> Emitted:
    """Have the owner of *resource* told *message*; *reason* is one word in upper camel case. Gives no text.

    Of a fragment that fails nothing is told but that. With *if_refused* it is
    the other way round: it is told only if the fragment fails, or HAProxy
    refuses what it gives, with the reason, and with *if_refused*, which says
    what is so then; for owners of other objects that need this one. A message
    must not hold what a Secret does.
    """
    if not isinstance(resource, Mapping):
        raise TemplateFaultError("remark: the first argument is not an object")
    if not isinstance(reason, str) or not _REASON(reason):
        raise TemplateFaultError("remark: the reason is not one word in upper camel case", "such as NoEndpoints")
    if not isinstance(message, str) or not message:
        raise TemplateFaultError("remark: the message is not text")
    run = current_recorder()
    if run.importing:
        raise TemplateFaultError("an imported template calls remark", "call it in a macro")
    subject = msgspec.structs.replace(subject_of(resource), resource_version="")
    found = Remark(subject, str(reason), message_of(str(message)))
    if if_refused is not None:
        if not isinstance(if_refused, str) or not if_refused:
            raise TemplateFaultError("remark: if_refused is not text", 'such as "nothing of it is served"')
        run.add_concern(Concern(found, str(if_refused)))
    else:
        run.add_remark(found)
    return Emitted("")
