"""The output of the suite is split by test, and its reasons are found."""

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.suite_log import REASON_LIMIT, find_reasons, read_log, read_outcomes

LOG = """\
=== RUN   TestConformance
    suite.go:389: 2026-11-21T14:08:14.359412Z: Test Setup: Ensuring GatewayClass has been accepted
=== RUN   TestConformance/First
=== PAUSE TestConformance/First
=== RUN   TestConformance/Second
    conformance.go:77: 2026-11-21T14:08:15.100000Z: Applying tests/second.yaml
=== RUN   TestConformance/Second/0_request_to_example.org
    http.go:232: 2026-11-21T14:08:15.200000Z: Request failed, not ready yet: got 404
=== CONT  TestConformance/First
    conformance.go:77: 2026-11-21T14:08:15.300000Z: Applying tests/first.yaml
=== NAME  TestConformance/Second/0_request_to_example.org
    http.go:264:
        \tError Trace:\tsigs.k8s.io/gateway-api/conformance/utils/http/http.go:264
        \t            \t\t\t\tsigs.k8s.io/gateway-api/conformance/tests/second.go:50
        \tError:      \tReceived unexpected error:
        \t            \tcontext deadline exceeded
        \tTest:       \tTestConformance/Second/0_request_to_example.org
        \tMessages:   \terror making request
--- FAIL: TestConformance (12.00s)
    --- PASS: TestConformance/First (1.50s)
    --- FAIL: TestConformance/Second (10.25s)
        --- FAIL: TestConformance/Second/0_request_to_example.org (9.00s)
    --- SKIP: TestConformance/Third (0.00s)
FAIL
"""


def test_parallel_tests_are_distinguished() -> None:
    log = read_log(LOG)

    assert [line.split("/")[-1] for line in log.lines["First"]] == ["first.yaml"]
    assert any("not ready yet" in line for line in log.lines["Second"])
    assert any("Ensuring GatewayClass" in line for line in log.lines[""])


def test_seconds_are_those_of_the_whole_test() -> None:
    assert read_log(LOG).seconds == {"First": 1.5, "Second": 10.25, "Third": 0.0}


def test_reason_is_what_the_assertion_says_and_for_a_wait_what_was_seen_last() -> None:
    (reason,) = find_reasons(read_log(LOG).lines["Second"])

    assert reason.startswith("error making request: Received unexpected error: context deadline exceeded")
    assert reason.endswith("exceeded (http.go:232: Request failed, not ready yet: got 404)")


def test_without_an_assertion_the_last_word_is_the_reason() -> None:
    lines = ["    http.go:1: 2026-11-21T14:08:15.1Z: first", "    http.go:2: 2026-11-21T14:08:15.2Z: got 404"]

    assert find_reasons(lines) == ["http.go:2: got 404"]


def test_equal_reasons_are_listed_once() -> None:
    lines = ["        \tError Trace:\tone.go:1", "        \tError:      \tbad", "        \tMessages:   \tvery"]

    assert find_reasons(lines * 3) == ["very: bad"]


def test_outcomes_are_sorted_and_one_that_is_cut_off_is_left_out() -> None:
    text = (
        '{"test":"B","features":["Gateway"],"provisional":true,"outcome":"failed"}\n'
        '{"test":"A","features":[],"provisional":false,"outcome":"passed"}\n'
        '{"test":"C","featu'
    )

    assert [(one.test, one.outcome) for one in read_outcomes(text)] == [("A", "passed"), ("B", "failed")]


@given(st.lists(st.text(alphabet=st.sampled_from("ab :\t\n=-/.()0Error")), max_size=20))
def test_any_log_can_be_read(lines: list[str]) -> None:
    log = read_log("\n".join(lines))

    for said in log.lines.values():
        assert all(len(reason) <= 2 * REASON_LIMIT + 3 for reason in find_reasons(said))
