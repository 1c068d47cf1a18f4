"""Look-ups whose answers are remembered."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from haptic_trio.gateway.answers import Answers
from haptic_trio.gateway.objects import Lookups, derived, found_in
from haptic_trio.k8s.resource import Resource, ref_of
from tests.gateway.objects import gateway, gateway_class, made, service, stores_of


def labels(found: Sequence[Resource]) -> list[Any]:
    """Return the labels of *found*."""
    return [one["metadata"].get("labels") for one in found]


def test_a_record_holds_until_one_of_its_answers_is_another_one() -> None:
    stores = stores_of(gateway_class(), gateway(), service())
    answers = Answers(stores)

    def ask(lookups: Lookups) -> Any:
        return derived(lookups, "services", labels, "web", "app"), len(found_in(lookups, "gateways"))

    answer, record = answers.record(lambda: ask(answers.lookups))
    _, other = answers.record(lambda: derived(answers.lookups, "services", len, "web", "app"))
    assert answer == ([None], 1)
    assert answers.holds(record)

    stores["services"].upsert(made("Service", "app", version="v1", spec={"ports": []}))
    assert answers.holds(record)

    labelled = service()
    labelled["metadata"]["labels"] = {"a": "b"}
    stores["services"].upsert(labelled)
    assert not answers.holds(record)
    assert answers.holds(other)

    answer, again = answers.record(lambda: ask(answers.lookups))
    assert answer == ([{"a": "b"}], 1)
    assert answers.holds(again)
    assert not answers.holds(record)

    stores["gateways"].delete(ref_of(gateway()))
    assert not answers.holds(again)


def test_an_answer_is_kept_as_long_as_a_record_with_it() -> None:
    stores = stores_of(service())
    answers = Answers(stores)
    _, record = answers.record(lambda: derived(answers.lookups, "services", len, "web", "app"))

    for number in range(5_000):
        answers.record(partial(derived, answers.lookups, "services", len, "web", str(number)))

    # That of the record, and that of the last question.
    assert len(answers) == 2
    assert answers.holds(record)
    stores["services"].delete(ref_of(service()))
    assert not answers.holds(record)
