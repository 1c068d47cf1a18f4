"""HAProxy computes each password hash whenever it reads a configuration: each namespace has a share of that time."""

import base64
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.render import Renderer
from tests.support.kubernetes import ingress, path, rule, service
from tests.support.proxy import check
from tests.support.rendering import KINDS, Rendered, library_config, render

NGINX = "nginx.ingress.kubernetes.io/"
ORG = "haproxy.org/"
HI = "haproxy-ingress.github.io/"
LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-org-annotations", "haproxy-ingress-annotations")
COSTLY = "$6$rounds=99999$abcdefgh$" + "a" * 86
USUAL = "$5$abcdefgh$" + "a" * 43
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


@pytest.mark.haproxy
@pytest.mark.parametrize("way", WAYS)
def test_costly_passwords_of_one_namespace_stop_no_deployment_of_others(way: str, tmp_path: Path) -> None:
    rendered = render(
        [*protected("attacker", way, COUNT, 10, COSTLY), *protected("victim", way, 3, 5, USUAL)], libraries=LIBRARIES
    )

    # A million rounds each.
    assert (lists_of(rendered, "attacker"), lists_of(rendered, "victim")) == (2, 3)
    assert set(rendered.refused) == {f"Ingress attacker/i{number:02}" for number in range(2, COUNT)}
    assert (
        "namespace attacker has password hashes of more than 2,000,000 rounds"
        in rendered.refused["Ingress attacker/i02"]
    )
    # Nothing of them is served without passwords.
    for number in range(COUNT):
        assert (f"h{number}.attacker" in "".join(rendered.files.values())) == (number < 2)
    began = os.times()
    assert check(tmp_path, rendered.text, rendered.files) == ""
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

    assert {refusal.subject.name for refusal in rendered.refusals} == {"i02", "i03"}
