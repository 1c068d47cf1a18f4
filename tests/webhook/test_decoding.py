"""The time that the bodies of a namespace take to be decoded."""

from itertools import chain, repeat

import pytest

from haptic_trio.webhook.bodies import BodyError
from haptic_trio.webhook.decoding import SMALL, Decoder
from tests.webhook.builders import body_of, review_of, web


class Clocks:
    """Clocks that tests set; each decoding takes *seconds* of CPU time."""

    def __init__(self, seconds: float) -> None:
        self.now = 100.0
        self._cpu = chain.from_iterable(repeat((0.0, seconds)))

    def decoder(self) -> Decoder:
        return Decoder(clock=lambda: self.now, cpu_clock=lambda: next(self._cpu))


def body(namespace: str, *, size: int = 2 * SMALL, note: str = "") -> bytes:
    review = review_of(web(annotations={"note": note, "text": "x" * size}))
    review["request"]["namespace"] = namespace
    return body_of(review)


def test_a_namespace_whose_large_bodies_take_long_leaves_ten_times_as_long_to_others() -> None:
    clocks = Clocks(0.3)
    decoder = clocks.decoder()
    decoder.decode(body("big"))

    clocks.now += 2.9
    with pytest.raises(BodyError) as caught:
        decoder.decode(body("big"))
    assert caught.value.status == 429
    # Those of others, and small ones, are decoded meanwhile.
    assert decoder.decode(body("small")).namespace == "small"
    assert decoder.decode(body("other", note='"namespace":"small"')).namespace == "other"

    clocks.now += 3.0
    assert decoder.decode(body("big")).namespace == "big"


def test_small_bodies_and_those_without_a_namespace_are_always_decoded() -> None:
    decoder = Clocks(0.3).decoder()
    decoder.decode(body("big"))

    for _review in range(2):
        assert decoder.decode(body("big", size=1)).namespace == "big"
        assert decoder.decode(body("")).namespace == ""


def test_bodies_that_take_little_time_lead_to_no_pause() -> None:
    decoder = Clocks(0.01).decoder()

    for _review in range(2):
        assert decoder.decode(body("big")).namespace == "big"


def test_a_body_with_too_many_values_leads_to_a_pause_as_well() -> None:
    decoder = Clocks(0.3).decoder()
    for status in (413, 429):
        with pytest.raises(BodyError) as caught:
            decoder.decode(body("big").replace(b'"spec":{}', b'"spec":[' + b"{}," * 300_000 + b"{}]"))
        assert caught.value.status == status
