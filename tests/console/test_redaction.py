"""The console removes the content of Secrets from texts: encoded, decoded, and line by line."""

import base64

import pytest

from haptic_trio.console.redaction import MOST_BYTES, MOST_SECRETS, Redactor
from haptic_trio.k8s.store import Store, Stores


def secrets(*values: str) -> Stores:
    """Return stores with a Secret for each of *values*."""
    store = Store("secrets", ["metadata.name"])
    store.replace(
        [
            {
                "kind": "Secret",
                "metadata": {"name": f"s{number}", "namespace": "default", "resourceVersion": "1"},
                "data": {"value": base64.b64encode(value.encode()).decode()},
            }
            for number, value in enumerate(values)
        ]
    )
    return Stores([store])


def test_values_are_replaced_encoded_and_decoded_and_line_by_line() -> None:
    stores = secrets("correct horse", "first line\nsecond line")
    redactor = Redactor(lambda: stores)

    text = redactor.clean(f"x correct horse y {base64.b64encode(b'correct horse').decode()} z second line")

    assert "horse" not in text
    assert "second line" not in text
    assert text.startswith("x <secret, digest ")
    assert text.count("<secret, digest ") == 3


def test_credentials_and_nested_values_are_cleaned_without_stores() -> None:
    redactor = Redactor(lambda: None, lambda: ("s3cret",))

    assert redactor.clean_all({"a": ["the s3cret", 1, None]})["a"][1:] == [1, None]
    assert "s3cret" not in str(redactor.clean_all({"a": ["the s3cret"]}))


def test_secrets_of_an_iteration_stay_known_when_it_has_ended() -> None:
    present: list[Stores | None] = [secrets("correct horse")]
    redactor = Redactor(lambda: present[0])
    redactor.clean("anything")
    present[0] = None

    assert "horse" not in redactor.clean("correct horse")


def test_with_too_many_secrets_the_text_is_withheld() -> None:
    stores = secrets(*(f"value {number}" for number in range(MOST_SECRETS + 1)))

    assert Redactor(lambda: stores).clean("harmless").startswith("withheld, digest ")


def test_with_secrets_of_too_many_bytes_the_text_is_withheld_and_nothing_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = secrets(*("x" * (MOST_BYTES // 12) for _ in range(17)))
    monkeypatch.setattr(base64, "b64decode", None)

    assert Redactor(lambda: stores).clean("harmless").startswith("withheld, digest ")


def test_a_secret_is_read_again_only_if_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = secrets("correct horse", "battery")
    redactor = Redactor(lambda: stores)
    redactor.clean("anything")
    read: list[str] = []
    decode = base64.b64decode

    def note(value: str, *, validate: bool) -> bytes:
        read.append(value)
        return decode(value, validate=validate)

    monkeypatch.setattr(base64, "b64decode", note)
    (present,) = stores.values()
    staple = base64.b64encode(b"staple").decode()
    present.upsert({**present.list()[1], "data": {"value": staple}})

    assert "horse" not in redactor.clean("correct horse, staple")
    assert "staple" not in redactor.clean("correct horse, staple")
    assert read == [staple]
