"""Warnings that templates attach to an object: it is served, but differently than its owner may expect.

A warning belongs to the output of a fragment, as its text does: it is kept
with the fragment, and ends when the fragment renders without it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.subjects import Concern, ObjectWarning, message_of, subject_of
from haptic_trio.templating.values.text import Emitted

_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}").fullmatch


def warn(resource: Any, reason: Any, message: Any, if_rejected: Any = None) -> Emitted:
    """Warn the owner of *resource* with *message*; *reason* is one word in upper camel case. Returns no text.

    The warnings of a fragment that fails are dropped. A warning with
    *if_rejected* is the opposite: it is sent only if the fragment fails or
    HAProxy rejects its output. Its text is then *message*, the problem, and
    *if_rejected*, which names the consequence; use it for owners of other
    objects that need this one. A message must not contain data of a Secret.
    """
    if not isinstance(resource, Mapping):
        raise TemplateFaultError("warn: the first argument is not an object")
    if not isinstance(reason, str) or not _REASON(reason):
        raise TemplateFaultError("warn: the reason is not one word in upper camel case", "such as NoEndpoints")
    if not isinstance(message, str) or not message:
        raise TemplateFaultError("warn: the message is not text")
    run = current_recorder()
    if run.importing:
        raise TemplateFaultError("an imported template calls warn", "call it in a macro")
    subject = msgspec.structs.replace(subject_of(resource), resource_version="")
    found = ObjectWarning(subject, str(reason), message_of(str(message)))
    if if_rejected is not None:
        if not isinstance(if_rejected, str) or not if_rejected:
            raise TemplateFaultError("warn: if_rejected is not text", 'such as "nothing of it is served"')
        run.add_concern(Concern(found, str(if_rejected)))
    else:
        run.add_warning(found)
    return Emitted("")
