"""Content of Secrets is hidden from users who write other objects."""

import base64
from typing import Any

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.webhook.hidden import MOST_BYTES, MOST_SECRETS, MOST_WORDS, hidden_in, hidden_words


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


def found(stores: Stores, namespace: str = "") -> frozenset[str]:
    words = hidden_words(stores, namespace)
    assert words is not None
    return words


def test_secrets_of_one_namespace_are_hidden_or_all_unless_they_are_very_many() -> None:
    few = stores_of(secret("a", key="password-a"), secret("b", "other", key="password-b"))
    many = stores_of(
        secret("a", key="password-a"), *(secret(f"s{n}", "other", key=f"password-{n}") for n in range(MOST_SECRETS))
    )

    assert {"password-a", "password-b"} <= found(few)
    assert "password-a" in found(few, "default")
    assert "password-b" not in found(few, "default")
    assert "password-a" in found(many, "default")
    assert hidden_words(many, "") is None


def test_secrets_of_many_lines_or_bytes_cost_other_namespaces_nothing() -> None:
    own = secret("a", key="password-a")
    lines = "\n".join(f"{number:05}" for number in range(MOST_WORDS + 1))
    large = [{**secret(f"s{number}", "attacker"), "data": {"key": "A" * (1 << 20)}} for number in range(17)]
    assert sum(len(each["data"]["key"]) for each in large) > MOST_BYTES

    for hostile in ([secret("s", "attacker", key=lines)], large):
        stores = stores_of(own, *hostile)
        assert "password-a" in found(stores, "default")
        assert hidden_words(stores, "attacker") is None
        assert hidden_words(stores, "") is None
