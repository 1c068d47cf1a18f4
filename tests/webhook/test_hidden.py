"""What is secret to those who write other objects."""

import base64
from typing import Any

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.webhook.hidden import MOST_SECRETS, hidden_in, hidden_words


def secret(name: str, namespace: str = "default", **data: str) -> Resource:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


def stores_of(*secrets: Resource) -> Stores:
    store = Store("secrets", ("metadata.name",))
    store.replace(secrets)
    return Stores([store])


def test_secret_hides_its_values_their_encoding_and_their_lines() -> None:
    hidden = hidden_in(secret("s", auth="user:one\nuser:two"))

    assert {"user:one", "user:two", "user:one\nuser:two"} <= hidden
    assert base64.b64encode(b"user:one\nuser:two").decode() in hidden


def test_other_objects_and_the_shortest_texts_hide_nothing() -> None:
    assert hidden_in({**secret("s", key="long enough"), "kind": "ConfigMap"}) == frozenset()
    assert "abc" not in hidden_in(secret("s", key="abc"))
    assert hidden_in(None) == frozenset()
    assert hidden_in({"kind": "Secret", "data": ["no", "mapping"], "stringData": {"a": 1}}) == frozenset()


def test_all_secrets_are_hidden_or_of_very_many_those_of_the_namespace() -> None:
    few = stores_of(secret("a", key="password-a"), secret("b", "other", key="password-b"))
    many = stores_of(
        secret("a", key="password-a"), *(secret(f"s{n}", "other", key=f"password-{n}") for n in range(MOST_SECRETS))
    )

    assert {"password-a", "password-b"} <= hidden_words(few, "default")
    assert "password-a" in hidden_words(many, "default")
    assert "password-7" not in hidden_words(many, "default")
