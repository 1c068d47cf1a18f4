"""Runs inside the image: starts the controller over a directory, and adds a host of each kind of change.

Prints HAProxy's version and its processes before and after the changes, as JSON: a reload starts another one.
"""

import base64
import json
import socket
import ssl
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import httpx
import trio

from haptic_trio.demo.certificate import make_certificate

LIMIT = 180.0
CLASS = """\
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: haptic}
spec: {controller: haptic-trio/ingress-controller}
"""
CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {{name: haptic-trio, namespace: default}}
data:
  config: |
    templating:
      libraries: [base, ssl, ingress]
      extraContext: {{bindAddress: 127.0.0.1, httpPort: {http}, httpsPort: {https}}}
"""
HOST = """\
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: default, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: http, protocol: TCP, port: {port}}}]
endpoints: [{{addresses: [127.0.0.1], conditions: {{ready: true}}}}]
---
apiVersion: v1
kind: Secret
metadata: {{name: {name}-tls, namespace: default}}
type: kubernetes.io/tls
data: {{tls.crt: {certificate}, tls.key: {key}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: {name}, namespace: default}}
spec:
  ingressClassName: haptic
  tls: [{{hosts: [{name}.localhost], secretName: {name}-tls}}]
  rules:
    - host: {name}.localhost
      http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: {name}, port: {{name: http}}}}}}}}]}}
"""
ROUTE = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: more, namespace: default}
spec:
  ingressClassName: haptic
  rules:
    - host: first.localhost
      http: {paths: [{path: /second, pathType: Prefix, backend: {service: {name: second, port: {name: http}}}}]}
"""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def answer(name: str, stream: trio.SocketStream) -> None:
    """Answer one request with *name*."""
    await stream.receive_some()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\nConnection: close\r\n\r\n"
    await stream.send_all(f"{head}{name}".encode())


async def write_host(folder: Path, nursery: trio.Nursery, name: str) -> ssl.SSLContext:
    """Serve *name* by an Ingress, a backend and a certificate of its own; return what trusts the certificate."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(partial(trio.serve_listeners, partial(answer, name), listeners))
    made = make_certificate(f"{name}.localhost")
    certificate, key = (base64.b64encode(text.encode()).decode() for text in (made.chain, made.key))
    port = listeners[0].socket.getsockname()[1]
    (folder / f"{name}.yaml").write_text(HOST.format(name=name, port=port, certificate=certificate, key=key))
    return ssl.create_default_context(cadata=made.authority)


async def wait_until_answered(expected: str, url: str, host: str, trust: ssl.SSLContext | bool = True) -> None:
    """Send requests until *expected* answers one."""
    while True:
        async with httpx.AsyncClient(verify=trust, trust_env=False) as client:
            try:
                got = await client.get(url, headers={"Host": host}, extensions={"sni_hostname": host})
            except httpx.TransportError:
                got = httpx.Response(503)
        if (got.status_code, got.text) == (200, expected):
            return
        await trio.sleep(0.02)


async def wait_for_deployment(metrics: str) -> float:
    """Wait until HAProxy has every change; return the number of reloads so far."""
    while True:
        async with httpx.AsyncClient(trust_env=False) as client:
            lines = (await client.get(metrics)).text.splitlines()
        values = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        held = [float(value) for name, value in values if name.startswith("haptic_instance_holding_back{")]
        if held and not any(held):
            return sum(float(value) for name, value in values if name.startswith("haptic_haproxy_reloads_total"))
        await trio.sleep(0.02)


def processes(folder: Path) -> list[int]:
    """Return the HAProxy processes that serve from *folder*."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if command[0].endswith(b"haproxy") and b"-c" not in command and any(str(folder).encode() in x for x in command):
            found.append(int(entry.name))
    return sorted(found)


async def main() -> None:
    """Run it, and print what HAProxy did."""
    with tempfile.TemporaryDirectory(prefix="changes-") as name, trio.fail_after(LIMIT):
        folder = Path(name)
        manifests, state = folder / "manifests", folder / "state"
        manifests.mkdir()
        http, https, listen = free_ports(3)
        (manifests / "class.yaml").write_text(CLASS)
        (manifests / "config.yaml").write_text(CONFIG.format(http=http, https=https))
        command = [
            "haptic-trio",
            "serve",
            f"--manifests={manifests}",
            f"--state-dir={state}",
            f"--listen=127.0.0.1:{listen}",
        ]
        log = (folder / "log").open("wb")
        async with trio.open_nursery() as nursery:
            first = await write_host(manifests, nursery, "first")
            run = partial(
                trio.run_process, [*command, "--on-exit=stop"], stdout=log, stderr=subprocess.STDOUT, check=False
            )
            nursery.start_soon(run)
            try:
                await wait_until_answered("first", f"https://127.0.0.1:{https}/", "first.localhost", first)
                metrics = f"http://127.0.0.1:{listen}/metrics"
                reloads, before = await wait_for_deployment(metrics), processes(state)
                second = await write_host(manifests, nursery, "second")
                await wait_until_answered("second", f"https://127.0.0.1:{https}/", "second.localhost", second)
                await wait_until_answered("second", f"http://127.0.0.1:{http}/", "second.localhost")
                (manifests / "more.yaml").write_text(ROUTE)
                await wait_until_answered("second", f"http://127.0.0.1:{http}/second", "first.localhost")
                reloads = await wait_for_deployment(metrics) - reloads
                after = processes(state)
            except trio.Cancelled:
                sys.stderr.write((folder / "log").read_text())
                raise
            nursery.cancel_scope.cancel(reason="all changes are made")
        shown = await trio.run_process(["haproxy", "-v"], capture_stdout=True)
    version = shown.stdout.decode().split()[2]
    sys.stdout.write(json.dumps({"version": version, "before": before, "after": after, "reloads": reloads}) + "\n")


if __name__ == "__main__":
    trio.run(main)
