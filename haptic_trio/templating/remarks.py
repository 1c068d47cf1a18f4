"""What templates have to say to the owner of an object: that it is served otherwise than its owner may think.

A remark is part of what a fragment gives, as its text is: kept with it, given
again with every render, and gone once the fragment does not make it any more.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from haptic_trio.templating.emit import FORBIDDEN, Emitted, TemplateFaultError
from haptic_trio.templating.run import current_run
from haptic_trio.templating.subjects import Remark, subject_of

_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}").fullmatch
_LONGEST: Final = 400
MOST_REMARKS: Final = 10
"""Of one object's part; what more it has to say is left out."""


def remark(resource: Any, reason: Any, message: Any) -> Emitted:
    """Have the owner of *resource* told *message*; *reason* is one word in upper camel case. Gives no text.

    Of a fragment that fails nothing is told but that. A message must not hold
    what a Secret does.
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
    text = FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(message))
    found = Remark(
        msgspec.structs.replace(subject_of(resource), resource_version=""),
        str(reason),
        text if len(text) <= _LONGEST else text[:_LONGEST] + "…",
    )
    remarks = run.trace.remarks
    if len(remarks) < MOST_REMARKS:
        remarks[found] = None
    return Emitted("")
