"""Failed assertions as problems: each cause once, with the description of its test."""

from haptic_trio.validation_tests.results import RENDER_FAILS, CaseResult, Checked, Verdict, problems_of


def failed(index: int, message: str) -> Checked:
    """Return a failed assertion."""
    return Checked(index=index, type="contains", title=f"title {index}", verdict=Verdict.FAILED, message=message)


def case(*checked: Checked) -> CaseResult:
    """Return the result of a test with *checked*."""
    return CaseResult(name="a", suite="s", source="config.yaml", line=3, description="It works.", checked=checked)


def test_failed_render_is_one_problem_and_other_failures_stay() -> None:
    fault = "web:1: 'nope' is not defined"

    problems = list(
        problems_of([case(failed(0, fault), failed(1, RENDER_FAILS + fault), failed(2, RENDER_FAILS + fault))])
    )

    assert [problem.message for problem in problems] == [f"the test 'a' (It works) fails: title 0: {fault}"]
    assert problems[0].hint == ""
    assert len(list(problems_of([case(failed(0, "x"), failed(1, "x"), failed(2, RENDER_FAILS + "y"))]))) == 3
