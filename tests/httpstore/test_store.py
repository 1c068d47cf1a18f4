"""Contents are fetched at intervals, and templates get the last accepted content; on a virtual clock."""

from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.errors import Problem
from haptic_trio.httpstore.content import Content, Failure, FetchError
from haptic_trio.httpstore.entry import RETRY_LIMIT, ContentMemory, Entry
from haptic_trio.httpstore.events import FetchProblem, HttpContentAccepted, HttpContentRejected, HttpFetched
from haptic_trio.httpstore.request import FetchPolicy
from tests.support.components.contents import Kept, Servers, request_of

URL = "https://lists.example.com/deny.txt"
OTHER = "https://lists.example.com/allow.txt"
DOWN = FetchError("the server answered 503")
BAD = Problem(message="no address", source="maps/deny.map", line=3)


async def test_first_fetches_are_made_together_and_not_more_of_them_than_allowed(autojump_clock: MockClock) -> None:
    requests = [request_of(f"https://lists.example.com/{number}") for number in range(10)]
    servers = Servers({request.url: "x" for request in requests}, seconds=2)
    kept = Kept(servers, policy=FetchPolicy(max_concurrent=5))

    await kept.want(*requests)

    assert trio.current_time() == 4
    assert servers.most == 5
    assert {kept.text(request) for request in requests} == {"x"}


async def test_what_is_there_is_not_fetched_again() -> None:
    kept = Kept(Servers({URL: "x"}))
    await kept.want(request_of(URL))
    await kept.want(request_of(URL), request_of(URL, interval=60))

    assert kept.servers.asked == [URL, URL]


async def test_content_is_fetched_by_its_interval_and_reported_when_it_changes(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    kept = Kept(Servers({URL: "one", OTHER: "fixed"}))
    request = request_of(URL, interval=60)
    await kept.want(request, request_of(OTHER))
    kept.accept()
    nursery.start_soon(kept.run)
    await kept.servers.wait_asked(5)
    assert 3 * 54 <= trio.current_time() <= 3 * 60
    assert kept.changes == []
    kept.servers.texts[URL] = "two"

    await kept.wait_changed()

    assert kept.changes == [(request.label,)]
    assert kept.text(request) == "two"
    assert kept.servers.asked.count(OTHER) == 1
    outcomes = [one.outcome for one in kept.reported(HttpFetched) if isinstance(one, HttpFetched)]
    assert outcomes == ["changed", "changed", "unchanged", "unchanged", "unchanged", "changed"]


async def test_failed_fetch_leaves_the_content_and_is_reported_once_until_it_succeeds(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    kept = Kept(Servers({URL: "one"}))
    request = request_of(URL, interval=60)
    await kept.want(request)
    kept.accept()
    nursery.start_soon(kept.run)
    kept.servers.texts[URL] = DOWN
    await kept.servers.wait_asked(6)
    assert kept.text(request) == "one"
    kept.servers.texts[URL] = "one"
    await kept.servers.wait_asked(7)
    await wait_all_tasks_blocked()

    solved, failing = FetchProblem(request.label, None), kept.reported(FetchProblem)
    assert len(failing) == 2
    assert isinstance(failing[0], FetchProblem)
    assert str(failing[0].problem) == f"{request.label}: the server answered 503; the content before it stays"
    assert failing[1] == solved
    assert kept.changes == []


async def test_content_that_could_not_be_had_comes_as_a_change(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    kept = Kept(Servers({URL: DOWN}))
    request = request_of(URL)
    await kept.want(request)
    assert kept.text(request) == "[the server answered 503]"
    nursery.start_soon(kept.run)
    await kept.servers.wait_asked(4)
    await wait_all_tasks_blocked()
    # Sooner at first, and later and later: 1, 2, 4 seconds at most.
    assert 3.5 <= trio.current_time() <= 7
    kept.servers.texts[URL] = "at last"
    await kept.wait_changed()

    assert kept.text(request) == "at last"
    asked = len(kept.servers.asked)
    await trio.sleep(1000)
    assert len(kept.servers.asked) == asked


async def test_rejected_content_is_not_offered_until_it_changes(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    kept = Kept(Servers({URL: "good"}))
    request = request_of(URL, interval=60)
    await kept.want(request)
    kept.accept()
    nursery.start_soon(kept.run)
    kept.servers.texts[URL] = "bad"
    await kept.wait_changed()
    ((key, content),) = kept.store.pending().items()
    kept.store.reject(key, content, BAD)
    assert kept.text(request) == "good"
    assert kept.reported(HttpContentRejected) == [
        HttpContentRejected(url=request.label, digest=content.digest, problem=BAD, has_former=True)
    ]
    await kept.servers.wait_asked(len(kept.servers.asked) + 3)
    assert (len(kept.changes), kept.store.pending()) == (1, {})
    kept.servers.texts[URL] = "good"
    await kept.servers.wait_asked(len(kept.servers.asked) + 2)
    assert (len(kept.changes), kept.store.pending()) == (1, {})
    kept.servers.texts[URL] = "better"
    await kept.wait_changed(2)

    assert kept.text(request) == "better"


async def test_first_content_that_is_rejected_is_as_good_as_none() -> None:
    kept = Kept(Servers({URL: "bad"}))
    request = request_of(URL)
    await kept.want(request)
    ((key, content),) = kept.store.pending().items()
    kept.store.withhold({key: content})
    assert "left out" in (kept.text(request) or "")
    kept.store.give_back({key: content})
    assert kept.text(request) == "bad"
    kept.store.reject(key, content, BAD)

    assert kept.text(request) == "[its content was rejected: no address]"


async def test_what_no_template_uses_any_more_is_released_and_not_fetched(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    kept = Kept(Servers({URL: "one", OTHER: DOWN}))
    request, other = request_of(URL, interval=60), request_of(OTHER, interval=60)
    await kept.want(request, other)
    kept.accept()
    nursery.start_soon(kept.run)
    kept.store.release(frozenset({request.key}))
    assert kept.reported(FetchProblem)[-1] == FetchProblem(other.label, None)
    await kept.servers.wait_asked(5)
    assert kept.servers.asked.count(OTHER) == 1
    kept.store.release(frozenset())
    asked = len(kept.servers.asked)
    await trio.sleep(1000)

    assert (len(kept.store), len(kept.servers.asked)) == (0, asked)


async def test_content_that_comes_after_its_release_is_dropped(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    kept = Kept(Servers({URL: "one"}))
    request = request_of(URL, interval=60)
    await kept.want(request)
    kept.accept()
    kept.servers.texts[URL], kept.servers.seconds = "two", 5
    nursery.start_soon(kept.run)
    await kept.servers.wait_asked(2)
    kept.store.release(frozenset())
    await trio.sleep(10)

    assert (kept.changes, kept.text(request)) == ([], None)


async def test_accepted_contents_carry_over_without_a_fetch_and_keep_their_time(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    memory = ContentMemory()
    first = Kept(Servers({URL: "one", OTHER: "pending"}), memory=memory)
    request, other = request_of(URL, interval=60), request_of(OTHER, interval=60)
    await first.want(request, other)
    first.store.accept({request.key: first.store.pending()[request.key]})
    await trio.sleep(30)
    second = Kept(Servers({URL: "one", OTHER: "pending"}), memory=memory)
    await second.want(request, other)

    assert second.text(request) == "one"
    # What was not accepted is fetched, and has to pass again.
    assert second.servers.asked == [OTHER]
    assert list(second.store.pending()) == [other.key]
    nursery.start_soon(second.run)
    await second.servers.wait_asked(2)
    assert trio.current_time() <= 60
    second.store.release(frozenset({other.key}))
    assert len(memory) == 0


async def test_there_is_a_limit_to_how_much_is_kept() -> None:
    kept = Kept(Servers({URL: "one", OTHER: "two"}), policy=FetchPolicy(max_contents=1))
    await kept.want(request_of(URL))
    await kept.want(request_of(OTHER))

    assert kept.text(request_of(OTHER)) == "[templates fetch more than 1 contents]"
    assert kept.servers.asked == [URL]
    assert len(kept.reported(FetchProblem)) == 1


async def test_render_is_not_held_up_by_a_queue_of_servers_that_do_not_answer(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    requests = [request_of(f"https://lists.example.com/{number}", interval=60) for number in range(9)]
    servers = Servers({request.url: "x" for request in requests}, seconds=4)
    kept = Kept(servers, policy=FetchPolicy(max_concurrent=3))
    await kept.want(*requests)

    assert trio.current_time() == 5.5
    assert [kept.text(request) for request in requests].count("x") == 3
    late = [request.label for request in requests if kept.text(request) == "[other fetches take too long]"]
    assert len(late) == 6
    nursery.start_soon(kept.run)
    await trio.sleep(12)
    assert {kept.text(request) for request in requests} == {"x"}
    assert sorted(label for labels in kept.changes for label in labels) == sorted(late)


async def test_age_is_that_of_the_content_that_was_confirmed_longest_ago(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    kept = Kept(Servers({URL: "one", OTHER: "two"}))
    assert kept.store.oldest(trio.current_time()) is None
    await kept.want(request_of(URL))
    assert kept.store.oldest(trio.current_time()) is None
    await kept.want(request_of(OTHER, interval=60))
    nursery.start_soon(kept.run)
    await trio.sleep(600)
    age = kept.store.oldest(trio.current_time())
    assert age is not None
    assert age <= 60
    kept.servers.texts[OTHER] = DOWN
    await trio.sleep(600)

    age = kept.store.oldest(trio.current_time())
    assert age is not None
    assert 600 <= age <= 660


async def test_acceptance_is_reported_once() -> None:
    kept = Kept(Servers({URL: "one"}))
    request = request_of(URL)
    await kept.want(request)
    contents = kept.store.pending()
    kept.store.accept(contents)
    kept.store.accept(contents)

    (reported,) = kept.reported(HttpContentAccepted)
    assert isinstance(reported, HttpContentAccepted)
    assert (reported.url, reported.bytes) == (request.label, 3)


async def test_store_ends_when_it_is_cancelled_in_the_middle_of_a_fetch(autojump_clock: MockClock) -> None:
    kept = Kept(Servers({URL: "one"}))
    await kept.want(request_of(URL, interval=60))
    kept.servers.seconds = 1000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.run)
        await kept.servers.wait_asked(2)
        nursery.cancel_scope.cancel()

    assert trio.current_time() <= 60


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["same", "fail", "accept", "reject", "withhold", "give back"]), st.just("")),
    ),
    max_size=30,
)


@given(STEPS)
def test_whatever_happens_what_was_accepted_stays_and_what_was_rejected_is_not_offered(
    steps: list[tuple[str, str]],
) -> None:
    entry = Entry(request_of(URL, interval=60), jitter=lambda: 0.0)
    accepted, now = "", 0.0
    rejected: Any = None
    for step, text in steps:
        now += 1
        match step:
            case "take":
                entry.take(Content.of(text), now)
            case "same":
                entry.take(None, now)
            case "fail":
                entry.fail(Failure("down"), now)
            case "accept" if entry.pending is not None:
                accepted, rejected = entry.pending.text, None
                assert entry.accept(entry.pending)
            case "reject" if entry.pending is not None:
                rejected = entry.pending.text
                assert entry.reject(entry.pending, BAD)
            case "withhold" | "give back":
                entry.is_withheld = step == "withhold" and entry.pending is not None
        offer = entry.offer
        if accepted:
            assert isinstance(offer, Content)
            assert entry.accepted is not None
            assert entry.accepted.text == accepted
        if isinstance(offer, Content):
            assert offer.text != rejected
            assert offer in (entry.accepted, entry.pending)
        if entry.failure is not None:
            assert entry.due <= now + RETRY_LIMIT
