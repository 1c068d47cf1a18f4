"""HAProxy computes each password hash whenever it reads a configuration: each namespace has a share of that time."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from haptic_trio.config.model import Config
from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.render import Rendered as PipelineRendered
from haptic_trio.pipeline.render import Renderer
from haptic_trio.templating.incremental.outputs import Recall
from haptic_trio.templating.incremental.settling.overall_rounds import OverallRounds
from haptic_trio.templating.values.subjects import FragmentKey
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import KINDS, Rendered, library_config, render
from tests.support.kubernetes import ingress, path, rule, service
from tests.support.traffic.proxy import check
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import ask

NGINX = "nginx.ingress.kubernetes.io/"
ORG = "haproxy.org/"
HI = "haproxy-ingress.github.io/"
LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-org-annotations", "haproxy-ingress-annotations")
COSTLY = "$6$rounds=5000$abcdefgh$" + "a" * 86
USUAL = "$5$abcdefgh$" + "a" * 43
LONG = {"longestPassword": 256}
WAYS = {
    "nginx": {NGINX + "auth-type": "basic", NGINX + "auth-secret": "pw"},
    "nginx, a map": {NGINX + "auth-type": "basic", NGINX + "auth-secret": "pw", NGINX + "auth-secret-type": "auth-map"},
    "haproxy.org": {ORG + "auth-type": "basic-auth", ORG + "auth-secret": "pw"},
    "haproxy-ingress": {HI + "auth-secret": "pw"},
}
COUNT = 40


def protected(namespace: str, way: str, count: int, users: int, hashed: str) -> list[Resource]:
    """Return *count* Ingresses that one Secret with as many *users* protects."""
    names = [f"u{number}" for number in range(users)]
    is_map = way in ("nginx, a map", "haproxy.org")
    data = dict.fromkeys(names, hashed) if is_map else {"auth": "\n".join(f"{name}:{hashed}" for name in names)}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "pw", "namespace": namespace, "resourceVersion": "1"},
            "type": "Opaque",
            "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
        },
        service("web", namespace=namespace),
        *(
            ingress(
                f"i{number:02}",
                rule(f"h{number}.{namespace}.example.com", path("/", "web")),
                namespace=namespace,
                annotations=WAYS[way],
            )
            for number in range(count)
        ),
    ]


def lists_of(rendered: Rendered, namespace: str) -> int:
    return sum(line.startswith("userlist ") and namespace in line for line in rendered.text.splitlines())


@pytest.mark.parametrize("way", WAYS)
def test_a_hash_that_takes_long_for_each_request_is_rejected(way: str) -> None:
    for rounds in ("5001", "99999", "999999999"):
        hashed = f"$6$rounds={rounds}$abcdefgh$" + "a" * 86
        rendered = render(protected("attacker", way, 1, 1, hashed), libraries=LIBRARIES)

        assert "more than 5,000 rounds" in rendered.rejected["Ingress attacker/i00"]
        assert "userlist" not in rendered.text


@pytest.mark.parametrize("way", WAYS)
def test_an_administrator_can_allow_more_rounds(way: str) -> None:
    objects = protected("own", way, 1, 1, f"$6$rounds=20000$abcdefgh${'a' * 86}")

    assert not render(objects, libraries=LIBRARIES, passwordRounds=20_000).rejected
    assert render(objects, libraries=LIBRARIES, passwordRounds=19_999).rejected


# Made with 1,000 rounds.
HASHES = {
    72: "mcFWAqByjLWDQeXMoGptNt8qw9mRFB9ejwIdi2/hERMxUyxpP74WI2cqpjqcB5XW32cqz3El4t0HIqyxJT65t0",
    73: "p5Jhzca5YEa8GuuTJ5Z6Pzw2aEbQGombkY0/mhsYzFIk2jU.D/COPgkoD1H2SdspaRqO1ypcVVoZ.VKHP6PgU/",
    256: "WcplBsUcfE.l1Fic.qPxwNQGZ34.5MOPjHG3ignYBWbGeIL5SN5JbFU9L67WlDu2sHVf6LOA9l3iRyQOyfP67/",
    257: "3WaFjps9lyP6kmx7s6ReQzorsd2VUXuWm.y3PcrjbarngIY8QKUkfNh7vGCY8FhKKWsRhYgGcixsZBXKCIqSQ0",
}


@pytest.mark.haproxy
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("settings", "size", "status"), [({}, 72, 503), ({}, 73, 401), (LONG, 256, 503), (LONG, 257, 401)]
)
def test_a_password_of_a_request_that_takes_long_to_hash_is_not_hashed(
    cluster: Cluster, way: str, settings: dict[str, Any], size: int, status: int
) -> None:
    objects = protected("own", way, 1, 1, f"$6$rounds=1000$abcdefgh${HASHES[size]}")
    cluster.serve(*objects, libraries=LIBRARIES, **settings)

    def answer(headers: dict[str, str]) -> int:
        return ask(cluster.http_port, "h0.own.example.com", headers=headers).status

    credentials = base64.b64encode(b"u0:" + b"a" * size).decode()
    # Without an endpoint, what is admitted is answered with 503.
    assert answer({"Authorization": f"Basic {credentials}"}) == status
    assert answer({"Authorization": "Basic dTA6YQ=="}) == answer({"Authorization": "Bearer a"}) == answer({}) == 401


@pytest.mark.haproxy
@pytest.mark.parametrize("way", WAYS)
def test_credentials_beside_the_ones_that_are_verified_are_wrong(cluster: Cluster, way: str) -> None:
    cluster.serve(*protected("own", way, 1, 1, f"$6$rounds=1000$abcdefgh${HASHES[72]}"), libraries=LIBRARIES)
    good = f"Authorization: Basic {base64.b64encode(b'u0:' + b'a' * 72).decode()}"
    other = "Basic YWRtaW46YQ=="
    for lines in ([good, f"Authorization: {other}"], [f"{good}, {other}"], [f"{good},{other}"]):
        request = ["GET / HTTP/1.1", "Host: h0.own.example.com"]
        assert exchange(cluster.http_port, *request, good).status == 503
        assert exchange(cluster.http_port, *request, *lines).status == 401, lines


@pytest.mark.haproxy
@pytest.mark.parametrize("way", WAYS)
def test_costly_passwords_of_one_namespace_stop_no_deployment_of_others(way: str, tmp_path: Path) -> None:
    rendered = render(
        [*protected("attacker", way, COUNT, 200, COSTLY), *protected("victim", way, 3, 5, USUAL)], libraries=LIBRARIES
    )

    # A million rounds each.
    assert (lists_of(rendered, "attacker"), lists_of(rendered, "victim")) == (2, 3)
    assert set(rendered.rejected) == {f"Ingress attacker/i{number:02}" for number in range(2, COUNT)}
    assert (
        "namespace attacker has password hashes of more than 2,000,000 rounds"
        in rendered.rejected["Ingress attacker/i02"]
    )
    # Nothing of them is served without passwords.
    for number in range(COUNT):
        assert (f"h{number}.attacker" in "".join(rendered.files.values())) == (number < 2)
    began = os.times()
    # HAProxy 3.4 warns of each password that takes long.
    warnings = check(tmp_path, rendered.text, rendered.files).splitlines()
    assert all("milliseconds to verify" in line for line in warnings if "[WARNING]" in line)
    assert not any("[ALERT]" in line for line in warnings if "zero-warning" not in line)
    ended = os.times()
    # All forty take more than ten. Time on the processor, which may be busy with something else.
    assert ended.children_user - began.children_user < 4


def test_the_share_is_a_setting() -> None:
    config = library_config(*LIBRARIES)
    config = replace(config, templating=replace(config.templating, max_namespace_hash_rounds=60_000))
    stores = Stores(Store(name, watched.index_by) for name, watched in config.watched_resources.items())
    for item in protected("shop", "nginx", 4, 5, USUAL):
        for name, watched in config.watched_resources.items():
            if KINDS[watched.resources] == item["kind"] and watched.field_selector in ("", f"type={item.get('type')}"):
                stores[name].upsert(item)

    rendered = Renderer(config).render_here(stores)

    assert {rejection.subject.name for rejection in rendered.rejections} == {"i02", "i03"}


def limited_to(total: int) -> Config:
    config = library_config(*LIBRARIES)
    return replace(config, templating=replace(config.templating, max_hash_rounds=total))


def fill(config: Config, *resources: Resource) -> Stores:
    stores = Stores(Store(name, watched.index_by) for name, watched in config.watched_resources.items())
    put(config, stores, *resources)
    return stores


def put(config: Config, stores: Stores, *resources: Resource) -> None:
    for item in resources:
        for name, watched in config.watched_resources.items():
            if KINDS[watched.resources] == item["kind"] and watched.field_selector in ("", f"type={item.get('type')}"):
                stores[name].upsert(item)


def created(at: str, resources: list[Resource]) -> list[Resource]:
    return [{**item, "metadata": {**item["metadata"], "creationTimestamp": at}} for item in resources]


def rejected_objects(rendered: PipelineRendered) -> set[str]:
    return {f"{rejection.subject.namespace}/{rejection.subject.name}" for rejection in rendered.rejections}


OLD, YOUNG = "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"


def test_of_all_namespaces_together_the_youngest_objects_are_rejected_first_at_a_start() -> None:
    # Room for four lists of 25,000 rounds; those of the attacker are rendered first.
    config = limited_to(100_000)
    attack = [item for n in range(5) for item in created(YOUNG, protected(f"a{n}", "nginx", 1, 5, USUAL))]
    victims = created(OLD, [*protected("y", "nginx", 2, 5, USUAL), *protected("z", "nginx", 1, 5, USUAL)])

    rendered = Renderer(config).render_here(fill(config, *attack, *victims))

    assert rejected_objects(rendered) == {f"a{n}/i00" for n in range(1, 5)}
    problem = rendered.rejections[0].problem
    assert "those of all namespaces have 100,000 rounds at most" in problem.message
    assert "templating.maxHashRounds" in problem.hint


def test_an_object_that_grows_takes_nothing_from_what_is_served_and_waits_for_room() -> None:
    config = limited_to(100_000)
    # The attacker has older objects.
    stores = fill(
        config,
        *created(OLD, protected("attacker", "nginx", 1, 5, USUAL)),
        *created(YOUNG, protected("victim", "nginx", 2, 5, USUAL)),
    )
    renderer = Renderer(config)
    first = renderer.render_here(stores)
    assert rejected_objects(first) == set()
    recall = Recall(valid=dict(first.produced))

    put(config, stores, *created(OLD, protected("attacker", "nginx", 1, 30, USUAL)))
    grown = renderer.render_here(stores, recall)
    put(config, stores, *created(YOUNG, protected("new", "nginx", 1, 5, USUAL)))
    full = renderer.render_here(stores, recall)
    put(config, stores, *created(YOUNG, protected("late", "nginx", 1, 5, USUAL)))
    over = renderer.render_here(stores, recall)
    for number in range(2):
        stores["ingresses"].delete(ResourceRef("Ingress", "victim", f"i0{number}"))
    room = renderer.render_here(stores, recall)

    assert rejected_objects(grown) == rejected_objects(full) == {"attacker/i00"}
    # Its last good version is served.
    assert all(rejection.has_fallback for rejection in grown.rejections)
    assert rejected_objects(over) == {"attacker/i00", "new/i00"}
    assert rejected_objects(room) == {"attacker/i00"}


def test_an_object_that_is_rejected_for_others_is_served_when_there_is_room() -> None:
    config = limited_to(50_000)
    stores = fill(config, *(item for name in "abc" for item in created(YOUNG, protected(name, "nginx", 1, 5, USUAL))))
    renderer = Renderer(config)
    assert rejected_objects(renderer.render_here(stores)) == {"c/i00"}
    stores["ingresses"].delete(ResourceRef("Ingress", "a", "i00"))
    assert rejected_objects(renderer.render_here(stores)) == set()
    put(config, stores, *created(OLD, protected("d", "nginx", 1, 5, USUAL)))
    assert rejected_objects(renderer.render_here(stores)) == {"c/i00"}


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 300))
def test_the_oldest_find_room_in_whatever_order_they_ask(rounds: list[int], limit: int) -> None:
    overall = OverallRounds(limit)
    keys = [FragmentKey("userlist", "Ingress", f"n{number:02}", "web") for number in range(len(rounds))]
    for number in reversed(range(len(rounds))):
        overall.claim(keys[number], rounds[number], {"metadata": {"creationTimestamp": f"2025-01-{number + 1:02}"}})
    rejected = overall.settle(Recall(), ())

    room, expected = limit, set[FragmentKey]()
    for key, wanted in zip(keys, rounds, strict=True):
        if wanted <= room:
            room -= wanted
        else:
            expected.add(key)
    assert rejected == expected
