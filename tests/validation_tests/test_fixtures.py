import base64
from typing import Any

import pytest
from cryptography import x509

from haptic_trio.config.model import Config, ValidationTest, WatchedResource
from haptic_trio.k8s.resource import Resource
from haptic_trio.validation_tests.fixtures import FixtureCache, fill_stores, make_stores, objects_by_store

KINDS = {
    "services": WatchedResource(api_version="v1", resources="services"),
    "web": WatchedResource(api_version="v1", resources="services", label_selector="app=web"),
    "kubeSystem": WatchedResource(api_version="v1", resources="services", namespaces=("kube-system",)),
    "secrets": WatchedResource(api_version="v1", resources="secrets", field_selector="type=kubernetes.io/tls"),
    "classes": WatchedResource(api_version="networking.k8s.io/v1", resources="ingressclasses"),
}


def expand(name: str, *fixtures: dict[str, Any]) -> list[Resource]:
    cache = FixtureCache(Config(watched_resources=KINDS))
    return cache.expand(ValidationTest(fixtures={name: list(fixtures)})).objects[name]


def service(name: str, **metadata: Any) -> dict[str, Any]:
    return {"kind": "Service", "metadata": {"name": name, **metadata}}


def test_what_an_api_server_would_know_is_filled_in() -> None:
    (found,) = expand("services", service("web"))

    assert found["apiVersion"] == "v1"
    assert found["metadata"] == {
        "name": "web",
        "namespace": "default",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": "1",
    }
    (cluster_wide,) = expand("classes", {"kind": "IngressClass", "metadata": {"name": "haptic"}})
    assert "namespace" not in cluster_wide["metadata"]


def test_one_fixture_may_stand_for_many_objects() -> None:
    spec = {"ip": "10.{n//2}.{n%2}.1", "id": "{n+10}-{n*3}-{n:03}-{n%2:02}", "port": 80, "no": "{name}"}
    found = expand("services", {"repeat": 4, "object": {**service("web{n}"), "spec": spec}})

    assert [one["metadata"]["name"] for one in found] == ["web0", "web1", "web2", "web3"]
    assert found[3]["spec"] == {"ip": "10.1.1.1", "id": "13-9-003-01", "port": 80, "no": "{name}"}


def test_a_certificate_is_made_for_the_names_that_are_asked_for() -> None:
    (found,) = expand("secrets", {"kind": "Secret", "metadata": {"name": "a"}, "certificateFor": ["a.example.com"]})

    assert found["type"] == "kubernetes.io/tls"
    assert "certificateFor" not in found
    certificate = x509.load_pem_x509_certificate(base64.b64decode(found["data"]["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example.com"]


def test_texts_of_a_secret_become_its_data() -> None:
    (found,) = expand("secrets", {"kind": "Secret", "metadata": {"name": "a"}, "stringData": {"x": "y"}})

    assert found["data"] == {"x": base64.b64encode(b"y").decode()}


def test_every_store_gets_what_it_selects_of_its_kind() -> None:
    config = Config(watched_resources=KINDS)
    objects = FixtureCache(config).expand(
        ValidationTest(
            fixtures={
                "services": [service("a", labels={"app": "web"}), service("b", namespace="kube-system")],
                "secrets": [{"kind": "Secret", "metadata": {"name": "opaque"}, "type": "Opaque"}],
            }
        )
    )
    stores = make_stores(config)
    fill_stores(stores, objects_by_store(config, objects.objects))

    names = {name: [one["metadata"]["name"] for one in store.list()] for name, store in stores.items()}
    assert names == {"services": ["a", "b"], "web": ["a"], "kubeSystem": ["b"], "secrets": [], "classes": []}


def test_an_extended_test_lends_its_objects_and_variables() -> None:
    tests = {
        "base": ValidationTest(
            fixtures={"services": [service("a"), service("b")]}, extra_context={"x": {"one": 1, "two": 2}}
        ),
        "middle": ValidationTest(extends="base", extra_context={"x": {"two": 3}}),
        "top": ValidationTest(
            extends="middle",
            fixtures={"services": [service("b", labels={"app": "web"}), service("c")]},
            previous_fixtures={"services": [service("z")]},
        ),
    }
    cache = FixtureCache(Config(watched_resources=KINDS, validation_tests=tests))
    top = cache.expand(tests["top"])

    assert [one["metadata"]["name"] for one in top.objects["services"]] == ["a", "b", "c"]
    assert top.objects["services"][1]["metadata"]["labels"] == {"app": "web"}
    assert top.context == {"x": {"one": 1, "two": 3}}
    assert top.previous is not None
    assert [one["metadata"]["name"] for one in top.previous["services"]] == ["z"]


def test_tests_with_the_same_fixtures_share_the_objects() -> None:
    tests = {
        "base": ValidationTest(fixtures={"services": [{"repeat": 3, "object": service("s{n}")}]}),
        "one": ValidationTest(extends="base"),
        "two": ValidationTest(extends="base"),
    }
    cache = FixtureCache(Config(watched_resources=KINDS, validation_tests=tests))
    first, second = (cache.expand(tests[name]).objects["services"] for name in ("one", "two"))

    assert all(one is other for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("text", ["{n//0}", "{n%0}"])
def test_division_by_nothing_is_by_one(text: str) -> None:
    (found,) = expand("services", {"repeat": 1, "object": service(f"x{text}")})

    assert found["metadata"]["name"] == "x0"
