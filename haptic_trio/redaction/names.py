"""Names of what may be a credential."""

import re
from typing import Final

BLANK: Final = "…"
"""Shown in place of a credential."""
# The annotation `rate-limit-key` names what is counted.
SECRET_NAME: Final = re.compile(
    r"(?:password|passwd|passphrase|token|secret|authori[sz]ation|credential|bearer|cookie"
    r"|(?:private|api)[-_]?key|(?<=[a-z0-9][-_])(?<!limit-)key(?=s?(?![a-z])))s?",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether the value of a field with this *name* may be a credential."""
    return SECRET_NAME.search(name) is not None
