"""HAProxy processes of the request benchmark: by hand, and with a configuration that haptic-trio renders."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.dataplane.local.process import PROC
from haptic_trio.errors import HapticError
from haptic_trio.k8s.resource import Resource
from haptic_trio.validation_tests.live.certificates import issue_certificate
from tools.bench.requests.cases import (
    ADD_RESPONSE,
    ANNOTATIONS,
    CANARY,
    FLOOR,
    GATEWAY,
    INGRESS,
    PLAIN,
    SERVICE,
    SET_REQUEST,
    TLS_APP,
    case_objects,
    route_of,
)
from tools.bench.rig.objects import (
    CONFIG_NAME,
    Place,
    app_name,
    host_of,
    make_ingress,
    make_secret,
    make_service,
    make_slice,
    split_docs,
)
from tools.bench.rig.traffic import LOOPBACK

START_LIMIT = 60.0
OBJECTS_OF_FILE = 5000
PLACE = Place()
SITES = (PLAIN, FLOOR, INGRESS, ANNOTATIONS, GATEWAY)
LIBRARIES: dict[str, tuple[str, ...]] = {
    INGRESS: ("base", "ssl", "ingress"),
    ANNOTATIONS: ("base", "ssl", "ingress", "nginx-annotations", "haproxy-ingress-annotations"),
    GATEWAY: ("base", "ssl", "gateway"),
}
TLS_HOSTS = "*.bench.example"

_HEAD = """\
global
    nbthread 1
    maxconn 1000
defaults
    mode http
    timeout client 50s
    timeout server 50s
    timeout connect 5s
    timeout http-keep-alive 60s
"""
_PLAIN = """\
frontend web
    bind {address}:{http}
    default_backend app
backend app
    server s1 {upstream}
"""
# What a person would write for hosts and paths in maps, with the headers that servers expect.
_FLOOR = """\
frontend web
    bind {address}:{http}
    bind {address}:{https} ssl crt site.pem alpn h2,http/1.1
    http-request set-var(txn.path) path
    http-request set-var(txn.host) req.hdr(host),host_only,lower
    http-request set-header X-Forwarded-For %[src]
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    http-request set-header X-Forwarded-Port %[dst_port]
    http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]
    http-request set-header X-Real-IP %[src]
    http-request set-var(txn.backend) var(txn.host),concat(|,txn.path),map_str(exact.map)
    acl is_found var(txn.backend) -m found
    http-request set-var(txn.backend) var(txn.host),concat(|,txn.path,/),map_beg(prefix.map) unless is_found
    use_backend %[var(txn.backend)] if is_found
"""


class SiteError(HapticError):
    """A HAProxy of the benchmark could not be configured or started; its output is in the message."""


class Site(msgspec.Struct, frozen=True):
    """A running HAProxy."""

    pid: int
    http: int
    https: int

    def cpu_ns(self) -> int:
        """Return the CPU time that the process has used, user and system, from the scheduler of the kernel."""
        return sum(int(file.read_text().split()[0]) for file in (PROC / str(self.pid) / "task").glob("*/schedstat"))

    def memory(self) -> int:
        """Return the bytes of memory that the process holds."""
        for line in (PROC / str(self.pid) / "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise SiteError(f"process {self.pid} has ended")


class Ports(msgspec.Struct, frozen=True):
    """Where a site listens."""

    http: int
    https: int
    spare_http: int
    spare_https: int
    """Of the frontends of the base library, where a Gateway has the others."""


def write_by_hand(site: str, folder: Path, hosts: int, upstream: int, ports: Ports) -> None:
    """Write the configuration of `PLAIN` or `FLOOR`."""
    text = _HEAD + (_PLAIN if site == PLAIN else _FLOOR).format(
        address=LOOPBACK, http=ports.http, https=ports.https, upstream=f"{LOOPBACK}:{upstream}"
    )
    if site == FLOOR:
        issued = issue_certificate((TLS_HOSTS,))
        (folder / "site.pem").write_text(issued.chain + issued.key)
        names = [app_name(number) for number in range(hosts)]
        text += "".join(f"backend {name}\n    server s1 {LOOPBACK}:{upstream}\n" for name in names)
        (folder / "exact.map").write_text("".join(f"{host_of(name)}|/healthz {name}\n" for name in names))
        (folder / "prefix.map").write_text("".join(f"{host_of(name)}|/ {name}\n" for name in names))
    (folder / "haproxy.cfg").write_text(text)


FILTERED: dict[str, Any] = {"match": CANARY, "filters": (SET_REQUEST, ADD_RESPONSE)}
"""What routes have that are measured for memory beside those by path."""


def site_objects(
    site: str, ports: Ports, hosts: int, upstream: int, *, extra: Mapping[str, Any] | None = None
) -> Iterator[Resource]:
    """Yield a cluster: *hosts* Ingresses or HTTPRoutes with a Service each, and the objects of the cases.

    HTTPRoutes have the match and the filters of *extra*.
    """
    yield _config(site, ports)
    yield make_secret(PLACE, "tls", TLS_HOSTS)[0]
    if site == GATEWAY:
        yield from _gateway(ports)
    for name in (SERVICE, *map(app_name, range(hosts))):
        yield make_service(PLACE, name)
        yield make_slice(PLACE, name, upstream)
    for name in map(app_name, range(hosts)):
        if site == GATEWAY:
            yield route_of(PLACE, name, name, **(extra or {}))
        else:
            yield make_ingress(PLACE, name, name, secret="tls" if name == TLS_APP else "")
    yield from case_objects(PLACE, site)


def _gateway(ports: Ports) -> Iterator[Resource]:
    version = "gateway.networking.k8s.io/v1"
    yield {
        "apiVersion": version,
        "kind": "GatewayClass",
        "metadata": {"name": "haptic"},
        "spec": {"controllerName": "haptic-trio/gateway-controller"},
    }
    tls = {"mode": "Terminate", "certificateRefs": [{"name": "tls"}]}
    listeners = [
        {"name": "http", "port": ports.http, "protocol": "HTTP"},
        {"name": "https", "port": ports.https, "protocol": "HTTPS", "tls": tls},
    ]
    yield {
        "apiVersion": version,
        "kind": "Gateway",
        "metadata": {"name": "web", "namespace": PLACE.namespace},
        "spec": {"gatewayClassName": "haptic", "listeners": listeners},
    }


def _config(site: str, ports: Ports) -> Resource:
    http, https = (ports.spare_http, ports.spare_https) if site == GATEWAY else (ports.http, ports.https)
    context = {
        "bindAddress": LOOPBACK, "ingressClass": PLACE.ingress_class, "httpPort": http, "httpsPort": https,
    }  # fmt: skip
    config = {
        "templating": {"libraries": list(LIBRARIES[site]), "extraContext": context, "renderTimeout": "10m"},
        "templateSnippets": {"global-bench": {"template": "    nbthread 1\n"}},
    }
    metadata = {"name": CONFIG_NAME, "namespace": PLACE.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config": yaml.safe_dump(config)}}


def write_rendered(
    site: str, folder: Path, ports: Ports, hosts: int, upstream: int, *, extra: Mapping[str, Any] | None = None
) -> None:
    """Write the configuration that haptic-trio renders for a site."""
    manifests = folder.with_name(f"{folder.name}-manifests")
    manifests.mkdir()
    objects = list(site_objects(site, ports, hosts, upstream, extra=extra))
    for first in range(0, len(objects), OBJECTS_OF_FILE):
        part = objects[first : first + OBJECTS_OF_FILE]
        (manifests / f"{first}.yaml").write_text(split_docs(part))
    command = [sys.executable, "-m", "haptic_trio", "render", "--strict"]
    ended = subprocess.run(
        [*command, "--manifests", manifests, "--output-dir", folder], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SiteError(ended.stderr)


@contextmanager
def run_site(haproxy: Path, folder: Path, ports: Ports) -> Iterator[Site]:
    """Run HAProxy with the configuration in *folder* for the duration of the block."""
    words = folder / "haproxy.log"
    with words.open("wb") as output:
        process = subprocess.Popen(
            [haproxy, "-db", "-f", "haproxy.cfg"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=clean_environment(),
            start_new_session=True,
        )
    try:
        _wait_listening(process, ports.http, words)
        yield Site(process.pid, ports.http, ports.https)
    finally:
        process.terminate()
        process.wait()


def _wait_listening(process: subprocess.Popen[bytes], port: int, words: Path) -> None:
    deadline = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1):
            return
        time.sleep(0.01)
    raise SiteError(words.read_text(errors="replace"))
