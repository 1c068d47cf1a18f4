"""The directory as the cluster: what is written is what another reader finds."""

from pathlib import Path
from typing import Any

import yaml

from haptic_trio.config.load import load_config
from haptic_trio.k8s.resource import ref_of
from tools.bench.rig.clusters import Directory, collection_path
from tools.bench.rig.objects import AT_ONCE, Place, app_name, make_app, make_config, make_ingress, make_slice

PLACE = Place(http_port=8080, https_port=8443)


def read(root: Path) -> dict[tuple[str, str], Any]:
    documents = [each for path in root.glob("[!.]*.yaml") for each in yaml.safe_load_all(path.read_text())]
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    assert len(found) == len(documents)
    return found


def test_an_object_is_changed_in_the_file_where_it_is_and_only_when_it_is_written(tmp_path: Path) -> None:
    directory = Directory(PLACE, tmp_path)
    directory.load([make_app(PLACE, app_name(number), 1) for number in range(2)])
    before = read(tmp_path)

    write = directory.prepare(make_slice(PLACE, app_name(1), 2), exists=True)
    assert read(tmp_path) == before
    write()

    after = read(tmp_path)
    changed = ("EndpointSlice", f"{app_name(1)}-1")
    assert after.pop(changed)["ports"][0]["port"] == 2
    before.pop(changed)
    assert after == before
    assert len(list(tmp_path.iterdir())) == 2


def test_an_object_is_removed_with_its_file_if_nothing_else_is_in_it(tmp_path: Path) -> None:
    directory = Directory(PLACE, tmp_path)
    directory.load([make_app(PLACE, app_name(0), 1)])
    more = make_ingress(PLACE, "more", app_name(0))
    directory.prepare(more, exists=False)()

    directory.remove(ref_of(more))
    directory.remove(ref_of(make_ingress(PLACE, app_name(0), app_name(0))))

    assert [path.name for path in tmp_path.iterdir()] == [f"{app_name(0)}.yaml"]
    assert read(tmp_path).keys() == {("Service", app_name(0)), ("EndpointSlice", f"{app_name(0)}-1")}


def test_in_a_shared_cluster_only_the_own_namespace_is_watched() -> None:
    shared = Place(http_port=8080, https_port=8443, namespace="mine", is_shared=True, ingress_class="mine")

    watched = load_config(make_config(shared, AT_ONCE, "v0"), None).config.watched_resources

    alone = load_config(make_config(PLACE, AT_ONCE, "v0"), None).config.watched_resources
    assert watched.keys() == alone.keys()
    for name, resource in watched.items():
        assert resource.namespaces == (() if resource.resources == "ingressclasses" else ("mine",)), name


def test_paths_of_collections_follow_the_group() -> None:
    service, endpoints, ingress = make_app(PLACE, "a", 1)

    assert [collection_path(each, "ns") for each in (service, endpoints, ingress)] == [
        "/api/v1/namespaces/ns/services",
        "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices",
        "/apis/networking.k8s.io/v1/namespaces/ns/ingresses",
    ]
