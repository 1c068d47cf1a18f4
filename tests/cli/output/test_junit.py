from xml.etree import ElementTree

from haptic_trio.cli.output.junit import to_junit
from haptic_trio.validation_tests.results import CaseResult, Checked, Verdict


def test_what_people_wrote_stays_what_they_wrote() -> None:
    nasty = "a<b>&\"'\x00\x1b[31m\n]]> é"
    failed = Checked(index=0, type="contains", title=nasty, verdict=Verdict.FAILED, message=nasty, diff=nasty)
    cases = [CaseResult(suite=nasty, name=nasty, source="x", line=3, checked=(failed,), seconds=0.25)]

    root = ElementTree.fromstring(to_junit(cases))

    kept = nasty.replace("\x00", "�").replace("\x1b", "�")
    (case,) = root.iter("testcase")
    assert case.attrib["name"] == kept
    assert (case.attrib["time"], case.attrib["line"]) == ("0.250", "3")
    (failure,) = case.iter("failure")
    assert failure.attrib["message"] == f"{kept}: {kept}"
    assert kept in (failure.text or "")


def test_an_unchecked_test_is_skipped() -> None:
    skipped = Checked(index=0, type="behaviour", title="x", verdict=Verdict.SKIPPED, message="no HAProxy")
    cases = [CaseResult(suite="s", name="n", checked=(skipped,))]

    root = ElementTree.fromstring(to_junit(cases))

    assert root.attrib["skipped"] == "1"
    assert next(root.iter("skipped")).attrib["message"] == "no HAProxy"
