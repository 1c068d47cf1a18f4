"""The cost of rendering an object, counted in calls and bytes, grows no faster than its size."""

import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from jinja2 import nodes

from haptic_trio.config.templates import template_set
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.templating.sandbox import TemplateEnvironment
from tests.support.components.rendering import KINDS, library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret
from tests.support.work import Work

LIBRARIES = ("base", "ssl", "ingress", "haproxy-org-annotations", "haproxy-ingress-annotations", "nginx-annotations")
NGINX = "nginx.ingress.kubernetes.io"
ORG = "haproxy.org"
OTHER = "haproxy-ingress.github.io"
HOST = "a.example.com"
SIZE = 20
ISSUER = trustme.CA()
ISSUED = ISSUER.issue_cert("h0.example.com")


def port_of(number: int) -> dict[str, Any]:
    return {"name": f"p{number}", "port": 8000 + number, "protocol": "TCP"}


def many_canaries(size: int) -> Iterator[Resource]:
    """As many pairs of Ingresses for one host, each with a path of its own."""
    for number in range(size):
        name, own = f"m{number:03}", path(f"/{number}", "web")
        yield ingress(name, rule(HOST, own))
        yield ingress(f"{name}-canary", rule(HOST, own), annotations={f"{NGINX}/canary": "true"})
    yield service("web")


def many_ports(size: int) -> Resource:
    return service("web", *map(port_of, range(size)))


def canaries(size: int) -> Iterator[Resource]:
    """One pair of Ingresses with as many paths, hosts and backends, half of the paths matched as a whole."""
    for name, annotations in (("main", {}), ("canary", {f"{NGINX}/canary": "true", f"{NGINX}/canary-by-header": "X"})):
        paths = [
            path(f"/{number}", "web", f"p{number}", kind="Exact" if number % 2 else "Prefix") for number in range(size)
        ]
        hosts = [rule(f"h{number}.example.com", path("/", "web", "p0")) for number in range(size)]
        yield ingress(name, rule(HOST, *paths), *hosts, annotations=annotations)
    yield many_ports(size)


def own_backends(size: int, prefix: str, **annotations: str) -> Iterator[Resource]:
    """An Ingress with as many backends."""
    found = {f"{prefix}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    paths = (path(f"/{number}", "web", f"p{number}" if number % 2 else 8000 + number) for number in range(size))
    yield ingress("own", rule(HOST, *paths), annotations=found)
    yield many_ports(size)
    yield endpoint_slice("web", endpoint("10.0.0.1"), ports={f"p{number}": 80 for number in range(size)})


def rejected_paths(size: int) -> Iterator[Resource]:
    """An Ingress with as many paths, none of which can be expressed: each of them is closed by itself."""
    yield ingress("rejected", rule(HOST, *(path(f"/a b{number}", "web") for number in range(size))))
    yield service("web")


def hosts_of(size: int, **annotations: str) -> Iterator[Resource]:
    """An Ingress with as many hosts, each of which has a certificate and a Service."""
    found = {f"{NGINX}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    names = [f"h{number}.example.com" for number in range(size)]
    rules = (rule(name, path("/", f"web{number}")) for number, name in enumerate(names))
    tls = [{"hosts": [name], "secretName": "tls"} for name in names]
    yield ingress("hosts", *rules, annotations=found, tls=tls)
    yield from (service(f"web{number}") for number in range(size))
    secret = tls_secret("tls", ISSUED.cert_chain_pems[0].bytes(), ISSUED.private_key_pem.bytes())
    secret["data"]["ca.crt"] = b64encode(ISSUER.cert_pem.bytes()).decode()
    yield secret


def annotated(size: int, prefix: str) -> Iterator[Resource]:
    """An Ingress with as many annotations that have no meaning."""
    paths = (path(f"/{number}", "web") for number in range(10))
    yield ingress("annotated", rule(HOST, *paths), annotations={f"{prefix}/a{n}": "x" for n in range(size)})
    yield service("web")


def listed(size: int) -> Iterator[Resource]:
    """An Ingress with as many addresses, origins and names in its annotations."""
    annotations = {
        f"{NGINX}/whitelist-source-range": ",".join(f"10.{n // 256}.{n % 256}.0/24" for n in range(size)),
        f"{NGINX}/enable-cors": "true",
        f"{NGINX}/cors-allow-origin": ",".join(f"https://h{n}.example.com" for n in range(size)),
        f"{NGINX}/cors-allow-headers": ",".join(f"X-H{n}" for n in range(size)),
        f"{NGINX}/server-alias": ",".join(f"x{n}.example.com" for n in range(size)),
    }
    yield ingress("listed", rule(HOST, path("/", "web")), annotations=annotations)
    yield service("web")


def endpoints(size: int) -> Iterator[Resource]:
    """An Ingress of a Service with as many endpoints in as many slices."""
    yield ingress("plain", rule(HOST, path("/", "web")))
    yield service("web")
    for number in range(size):
        yield endpoint_slice("web", endpoint(f"10.0.{number // 200}.{number % 200}"), ports=80, suffix=str(number))


def passthrough(size: int) -> Iterator[Resource]:
    """An Ingress with as many hosts whose connections go to ports of one Service."""
    rules = (rule(f"h{number}.example.com", path("/", "web", f"p{number}")) for number in range(size))
    yield ingress("tls", *rules, annotations={f"{NGINX}/ssl-passthrough": "true"})
    yield many_ports(size)


SHAPES: dict[str, Callable[[int], Iterable[Resource]]] = {
    "canary pairs": canaries,
    "canaries of a host": many_canaries,
    "own backends": lambda size: own_backends(size, NGINX, proxy_body_size="1m"),
    "rewritten paths": lambda size: own_backends(size, NGINX, rewrite_target="/x"),
    "rewritten paths of HAProxy Ingress": lambda size: own_backends(size, OTHER, rewrite_target="/x"),
    "own backends of haproxy.org": lambda size: own_backends(size, ORG, allow_list="10.0.0.0/8"),
    "hosts": hosts_of,
    "hosts with redirects": lambda size: hosts_of(size, from_to_www_redirect="true"),
    "hosts with client certificates": lambda size: hosts_of(size, auth_tls_secret="default/tls"),
    "unknown annotations": lambda size: annotated(size, NGINX),
    "unknown annotations of haproxy.org": lambda size: annotated(size, ORG),
    "annotations of others": lambda size: annotated(size, "example.com"),
    "rejected paths": rejected_paths,
    "lists": listed,
    "endpoints": endpoints,
    "passthrough": passthrough,
}


def cost_of(renderer: Renderer, objects: Iterable[Resource]) -> tuple[int, int, Rendered]:
    """Return the calls and the bytes of output that *objects* take beyond what none does."""
    watched = library_config(*LIBRARIES).watched_resources
    stores = Stores(Store(name, kind.index_by) for name, kind in watched.items())
    renderer.render_here(stores)
    empty = renderer.render_here(stores)
    for resource in objects:
        for name, store in stores.items():
            if KINDS[watched[name].resources] == resource["kind"]:
                store.upsert(resource)
    with Work() as work:
        rendered = renderer.render_here(stores)
    size = sum(text.size for text in rendered.texts.values()) - sum(text.size for text in empty.texts.values())
    return work.calls, size, rendered


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(library_config(*LIBRARIES))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_cost_grows_with_the_size_of_an_object(shape: str, renderer: Renderer) -> None:
    # What is made once for all sizes is made before.
    cost_of(renderer, SHAPES[shape](2))

    costs = [cost_of(renderer, SHAPES[shape](turn * SIZE)) for turn in (1, 2, 3)]

    # What is linear grows by as much from each size to the next. The allowance is for what is done once, or compressed.
    for counted in ([calls for calls, _, _ in costs], [size for _, size, _ in costs]):
        assert counted[2] - 2 * counted[1] + counted[0] <= 0.02 * counted[1], counted
    rendered = costs[-1][2]
    expected = ["Ingress"] if shape.startswith(("unknown", "rejected")) else []
    assert [rejection.subject.kind for rejection in rendered.rejections] == expected


def test_no_template_of_a_library_collects_in_a_list(renderer: Renderer) -> None:
    """`list + [x]` and `x in list` in a loop cost the square of what is collected; `collect()` does not."""
    libraries = Path(sys.modules["haptic_trio"].__path__[0]) / "libraries"
    names = [file.name for file in libraries.iterdir() if (file / "library.yaml").is_file()]
    sources = template_set(library_config(*names)).texts
    environment = TemplateEnvironment(dict(sources), {})
    found = {
        f"{name}:{assignment.lineno}"
        for name, source in sources.items()
        for loop in environment.parse(source, name).find_all(nodes.For)
        for assignment in loop.find_all(nodes.Assign)
        if isinstance(assignment.target, nodes.NSRef) and isinstance(assignment.node, nodes.Add)
    }
    # At most ten ports are named, and six scripts.
    assert {re.sub(":.*", "", place) for place in found} <= {"ingress-warnings", "global-gateway"}
