"""Rate limits and canaries from another controller work over several requests and changes."""

import time
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.render import Renderer
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import KINDS, library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import PATIENCE, ask, serving

NGINX = "nginx.ingress.kubernetes.io/"
HOST = "a.example.com"


def annotated(name: str, to: str, age: int = 1, **annotations: str) -> Resource:
    named = {NGINX + key.replace("_", "-"): value for key, value in annotations.items()}
    return ingress(name, rule(HOST, path("/", to)), annotations=named, age=age)


class Rendering:
    """Objects that change, rendered with what the last rendering has left."""

    def __init__(self, *objects: Resource) -> None:
        config = library_config("base", "ssl", "ingress", "nginx-annotations")
        self._kinds = {name: KINDS[watched.resources] for name, watched in config.watched_resources.items()}
        self._stores = Stores(Store(name, watched.index_by) for name, watched in config.watched_resources.items())
        self._renderer = Renderer(config)
        self.put(*objects)

    def put(self, *objects: Resource) -> None:
        for item in objects:
            for name, kind in self._kinds.items():
                if kind == item["kind"]:
                    self._stores[name].upsert(item)

    def again(self) -> Any:
        return self._renderer.render_here(self._stores)


@pytest.mark.haproxy
def test_who_asks_too_often_gets_what_is_allowed_rather_than_nothing(cluster: Cluster) -> None:
    with serving("web") as ports:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=ports["web"])
        limited = annotated("limited", "web", limit_rps="2", limit_burst_multiplier="1")
        cluster.serve(limited, service("web"), slices, libraries=("base", "ssl", "ingress", "nginx-annotations"))

        statuses, deadline = list[int](), time.monotonic() + PATIENCE
        # Never below the limit: that one is let in after a rejection shows that rejections do not count.
        while not (503 in statuses and statuses[-1] == 200) and time.monotonic() < deadline:
            statuses.append(ask(cluster.http_port, HOST).status)

    assert statuses[0] == statuses[-1] == 200
    assert 503 in statuses


def test_a_canary_changes_with_the_ingress_whose_requests_it_takes_a_part_of() -> None:
    objects = [service("web"), service("next")]
    objects += [endpoint_slice(name, endpoint("10.0.0.1"), ports=80) for name in ("web", "next")]
    canary = annotated(
        "canary", "next", age=2, canary="true", canary_weight="5", proxy_body_size="9m", load_balance="ewma"
    )
    rendering = Rendering(annotated("main", "web", proxy_body_size="1k"), canary, *objects)

    assert rendering.again().text.count("req.body_size gt 1024") == 2

    rendering.put(annotated("main", "web", proxy_body_size="2k", x_forwarded_prefix="/a"))
    text = rendering.again().text

    assert text.count("req.body_size gt 2048") == text.count("X-Forwarded-Prefix '/a'") == 2
    assert "9437184" not in text
    assert "balance leastconn" in text


def test_the_owner_of_a_canary_gets_a_warning_about_annotations_without_effect() -> None:
    main = annotated("main", "web", proxy_body_size="1k", enable_cors="true")
    canary = annotated(
        "canary",
        "next",
        age=2,
        canary="true",
        canary_weight="5",
        proxy_body_size="9m",
        app_root="/x",
        affinity="cookie",
    )

    warnings = [str(warning) for warning in Rendering(main, canary, service("web"), service("next")).again().warnings]

    (warning,) = (warning for warning in warnings if "CanaryInherits" in warning)
    assert "Ingress default/canary" in warning
    assert (
        "the annotations of the Ingress main apply to its requests; without effect here: app-root, proxy-body-size"
        in warning
    )


def test_the_owner_of_a_canary_gets_a_warning_if_the_main_ingress_verifies_clients_differently() -> None:
    main = annotated("main", "web", auth_tls_verify_client="off")
    canary = annotated("canary", "next", age=2, canary="true", canary_weight="5")

    rendered = Rendering(main, canary, service("web"), service("next")).again()

    (warning,) = (str(warning) for warning in rendered.warnings if "CanaryDiffers" in str(warning))
    assert "the Ingress main sends no requests to this canary, since it has another auth-tls-verify-client" in warning
    assert rendered.texts["maps/nginx-canary-paths.map"].text.split() == []
