"""An object under review is placed in every store of its kind if one of the stores requests the review."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from haptic_trio.config.load import load_config
from haptic_trio.config.model import Config
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.webhook.targets import find_replacements, targets_of
from tests.webhook.builders import request_of, web

REF = ResourceRef("Ingress", "default", "web")
KIND = {"apiVersion": "networking.k8s.io/v1", "resources": "ingresses"}
ASKED = {**KIND, "enableValidationWebhook": True}
NOW = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)


def config_of(**watched: Any) -> Config:
    text = json.dumps({"templating": {"libraries": ["base"]}, "watchedResources": watched})
    resource = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"config": text}}
    return load_config(resource, None).config


def test_every_store_of_the_kind_gets_the_object_if_one_of_them_wants_it_reviewed() -> None:
    targets = targets_of(config_of(one=ASKED, other=KIND, services={"apiVersion": "v1", "resources": "services"}))

    found = find_replacements(request_of(web(creationTimestamp="x")), targets)

    assert found == {"one": {REF: web(creationTimestamp="x")}, "other": {REF: web(creationTimestamp="x")}}


@pytest.mark.parametrize(
    "watched",
    [
        {"one": KIND},
        {"one": {**ASKED, "apiVersion": "networking.k8s.io/v2"}},
        {"one": {**ASKED, "namespaces": ["others"]}},
        {"one": {**ASKED, "labelSelector": "tier=edge"}},
        {"one": {**ASKED, "fieldSelector": "spec.ingressClassName=edge"}},
    ],
)
def test_objects_without_a_requested_review_are_ignored(watched: dict[str, Any]) -> None:
    assert find_replacements(request_of(web()), targets_of(config_of(**watched))) is None


def test_object_that_is_not_selected_any_more_is_gone() -> None:
    targets = targets_of(config_of(one={**ASKED, "labelSelector": "tier=edge"}))

    found = find_replacements(request_of(web(), old=web(labels={"tier": "edge"})), targets)

    assert found == {"one": {REF: None}}


def test_deleted_object_is_gone() -> None:
    assert find_replacements(request_of(None, old=web()), targets_of(config_of(one=ASKED))) == {"one": {REF: None}}


def test_new_object_is_the_youngest_and_in_the_namespace_of_the_request() -> None:
    bare = {"kind": "Ingress", "metadata": {"generateName": "web-"}, "spec": {}}

    found = find_replacements(request_of(bare), targets_of(config_of(one=ASKED)), NOW)

    assert found is not None
    (resource,) = found["one"].values()
    assert resource is not None
    assert resource["metadata"]["creationTimestamp"] == "2026-05-06T07:08:09Z"
    assert (resource["metadata"]["namespace"], resource["metadata"]["name"]) == ("default", "web")
