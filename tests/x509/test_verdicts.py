"""Tests of the cache of verdicts: what it keeps of a text is a digest."""

import base64
import os
import tracemalloc

import pytest

from haptic_trio.x509.bundles import BundleError, bundle_of
from haptic_trio.x509.verdicts import cached


def test_a_verdict_is_found_once() -> None:
    asked: list[tuple[str, ...]] = []

    @cached(2)
    def verdict(*texts: str) -> int:
        asked.append(texts)
        return len(asked)

    assert [verdict("ab", "c"), verdict("a", "bc"), verdict("ab", "c"), verdict("a", "bc")] == [1, 2, 1, 2]
    assert verdict("\ud800") == 3
    assert verdict("ab", "c") == 4


def test_results_are_kept_up_to_a_weight() -> None:
    asked: list[str] = []

    @cached(5, len)
    def letters(text: str) -> frozenset[str]:
        asked.append(text)
        return frozenset(text)

    for text in ("ab", "cde", "ab", "cde", "f", "ab", "f"):
        assert letters(text) == frozenset(text)
    assert asked == ["ab", "cde", "f", "ab"]


def test_versions_of_a_large_secret_do_not_stay_in_memory() -> None:
    size, number = 700_000, 20
    tracemalloc.start()
    try:
        for _ in range(number):
            body = base64.b64encode(os.urandom(size)).decode()
            with pytest.raises(BundleError):
                bundle_of(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        body = ""
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < size * number / 4
