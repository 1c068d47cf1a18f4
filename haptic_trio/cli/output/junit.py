"""Test results as JUnit XML."""

import re
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from haptic_trio.validation_tests.results import CaseResult, Verdict

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(cases: Sequence[CaseResult]) -> str:
    """Return an XML document with one `testsuite` for each suite and one `testcase` for each test."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {_totals(cases)}>"]
    for suite in dict.fromkeys(case.suite for case in cases):
        own = [case for case in cases if case.suite == suite]
        lines.append(f"  <testsuite name={_attribute(suite)} {_totals(own)}>")
        for case in own:
            lines += _case(case)
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _totals(cases: Sequence[CaseResult]) -> str:
    failed, skipped = sum(case.failed for case in cases), sum(case.skipped for case in cases)
    seconds = sum(case.seconds for case in cases)
    return f'tests="{len(cases)}" failures="{failed}" errors="0" skipped="{skipped}" time="{seconds:.3f}"'


def _case(case: CaseResult) -> list[str]:
    place = f" file={_attribute(case.source)} line={_attribute(str(case.line))}" if case.line else ""
    head = f"    <testcase classname={_attribute(case.suite)} name={_attribute(case.name)}{place}"
    head += f' time="{case.seconds:.3f}"'
    inner = []
    for one in case.checked:
        if one.verdict is Verdict.FAILED:
            text = "\n".join(part for part in (f"{one.source}:{one.line}", one.message, one.diff) if part)
            inner.append(
                f"      <failure type={_attribute(one.type)} message={_attribute(f'{one.title}: {one.message}')}>"
                f"{_content(text)}</failure>"
            )
    if case.skipped:
        inner.append(f"      <skipped message={_attribute(case.checked[0].message if case.checked else '')}/>")
    return [f"{head}>", *inner, "    </testcase>"] if inner else [f"{head}/>"]


def _content(text: str) -> str:
    return escape(_NOT_XML.sub("�", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("�", text), {"\n": "&#10;"})
