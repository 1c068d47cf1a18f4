"""Redaction of credentials in YAML documents, which may contain templates, for excerpts in problems."""

import re
from collections.abc import Iterator
from typing import Final

from haptic_trio.redaction.names import BLANK, SECRET_NAME
from haptic_trio.redaction.sources import without_credentials

_KEY: Final = rf"['\"]?[\w.-]*{SECRET_NAME.pattern}['\"]?[ \t]*:"
_SETTING: Final = re.compile(
    rf"^(?P<key>[ \t]*(?:-[ \t]+)*{_KEY}[ \t]+)(?!\{{[{{%]|(?:[&!]\S+(?:[ \t]+|$))*(?:[|>#]|$)).+$",
    re.IGNORECASE | re.MULTILINE,
)
_IN_FLOW: Final = re.compile(rf"(?P<key>[{{,][ \t]*{_KEY}[ \t]+)(?!\{{)[^\s,}}][^,}}\n]*", re.IGNORECASE)
_NESTED: Final = re.compile(rf"(?<![\w.-])(?P<key>{_KEY}[ \t]*)[\[{{](?![{{%])[^\[\]{{}}\n]*[\]}}]?", re.IGNORECASE)
_BLOCK: Final = re.compile(
    rf"(?P<indent>[ ]*(?:-[ ]+)*){_KEY}(?:[ \t]+[&!]\S+)*(?P<scalar>[ \t]+(?:[|>][-+0-9]*|{BLANK}))?[ \t]*(?:\#.*)?",
    re.IGNORECASE,
)
_ENTRY: Final = re.compile(r"(?P<key>[ ]*(?:-[ ]+)*(?:['\"]?[\w./-]+['\"]?:(?:[ ]+|$))?)(?P<value>.*)")
_KUBERNETES: Final = re.compile(r"secrets?\b", re.IGNORECASE)


def without_credentials_in_yaml(text: str) -> str:
    """Return *text*, a YAML document that may contain templates, with credentials replaced by `…`."""
    text = without_credentials(text)
    for pattern in (_SETTING, _IN_FLOW, _NESTED):
        text = pattern.sub(rf"\g<key>{BLANK}", text)
    return "\n".join(_without_blocks(text.split("\n")))


def _without_blocks(lines: list[str]) -> Iterator[str]:
    """Yield *lines*, with `…` for what is below a key that is the name of a secret.

    Mappings below `secrets` are shown: they are about the Kubernetes kind.
    """
    block: re.Match[str] | None = None
    for line in lines:
        text = line.lstrip(" ")
        depth = len(line) - len(text) + (text.startswith("- ") and block is not None and not block["scalar"])
        if block is not None and (not text.strip() or depth > len(block["indent"])):
            yield _without_value(line, block)
            continue
        block = _BLOCK.fullmatch(line)
        yield line


def _without_value(line: str, block: re.Match[str]) -> str:
    text = line.lstrip(" ")
    if not text.strip():
        return line
    if block["scalar"]:
        return line[: len(line) - len(text)] + BLANK
    entry = _ENTRY.fullmatch(line)
    if entry is None or not entry["value"].strip() or (_KUBERNETES.search(block[0]) and ":" in line):
        return line
    return f"{entry['key']}{BLANK}"
