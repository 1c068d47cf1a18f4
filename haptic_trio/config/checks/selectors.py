"""Syntax checks of label and field selectors."""

import re

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY = rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}"
_VALUE = rf"(?:{_NAME})?"
_LABEL_TERM = re.compile(
    rf"""\s*(?:
        !?\s*{_KEY}
      | {_KEY}\s*(?:==?|!=)\s*{_VALUE}
      | {_KEY}\s+(?:in|notin)\s*\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\)
    )\s*""",
    re.VERBOSE,
)
_FIELD_TERM = re.compile(r"\s*[A-Za-z][A-Za-z0-9_.\[\]-]*\s*(?:==?|!=)[^,=!]*")
_COMMA = re.compile(r",(?![^()]*\))")


def check_label_selector(selector: str) -> str:
    """Return what is wrong with the label *selector*; empty if nothing is."""
    for term in _COMMA.split(selector) if selector.strip() else ():
        if not _LABEL_TERM.fullmatch(term):
            return (
                f"{term.strip()!r} is not a valid label requirement, such as `app=web`, `tier in (a, b)` or `!legacy`"
            )
    return ""


def check_field_selector(selector: str) -> str:
    """Return what is wrong with the field *selector*; empty if nothing is."""
    for term in selector.split(",") if selector.strip() else ():
        if not _FIELD_TERM.fullmatch(term):
            example = "such as `metadata.name=x` or `spec.type!=ExternalName`"
            return f"{term.strip()!r} is not a valid field requirement, {example}"
    return ""
