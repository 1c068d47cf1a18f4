"""Kept answers are limited in bytes, and belong to one source."""

from haptic_trio.ingress.kept_answers import MOST_KEPT, KeptAnswers, size_of, size_of_all


def test_an_answer_belongs_to_the_source_that_it_was_made_from() -> None:
    kept = KeptAnswers[str, list[int], str]()
    source = [1]
    kept.keep("key", source, "answer", 1)
    assert kept.find("key", source) == "answer"
    assert kept.find("key", [1]) is None
    assert kept.find("other", source) is None


def test_a_further_answer_to_one_question_replaces_the_former() -> None:
    kept = KeptAnswers[str, list[int], str]()
    kept.keep("other", source := [0], "stays", 1)
    for _ in range(100):
        kept.keep("key", [1], "answer", MOST_KEPT // 2)
    assert kept.find("other", source) == "stays"


def test_answers_make_room_for_another_one() -> None:
    kept = KeptAnswers[int, list[int], str]()
    sources = [[number] for number in range(3)]
    for number, source in enumerate(sources):
        kept.keep(number, source, "answer", MOST_KEPT // 2 - 1_000)
    assert [kept.find(number, source) for number, source in enumerate(sources)] == [None, None, "answer"]


def test_sizes_are_those_of_json_up_to_a_limit() -> None:
    assert size_of({"a": 1}) == len(b'{"a":1}')
    assert size_of({"a": "\ud800"}) == MOST_KEPT
    assert size_of_all([{"a": 1}] * 3, 100) == 21
    assert size_of_all([{"a": 1}] * 300, 100) == 100
