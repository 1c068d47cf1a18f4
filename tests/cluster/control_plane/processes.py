"""etcd, the API server and the controllers as processes that a test may stop, start, freeze and kill."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import httpx
import trio

from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.certificates import Certificates
from tests.cluster.control_plane.state import AUDIT_LOG

ETCD: Final = "http://127.0.0.1:2379"
SECURE_PORT: Final = 6443
SERVICE_NETWORK: Final = "10.96.0.0/16"
ISSUER: Final = "https://kubernetes.default.svc"
AUDIT_POLICY: Final = Path(__file__).with_name("audit-policy.yaml")
STOP_GRACE: Final = 2.0
"""Seconds between SIGTERM and SIGKILL for a part that shall stop."""
POLL_INTERVAL: Final = 0.05
CONTROLLERS: Final = (
    "clusterrole-aggregation-controller,cronjob-controller,daemonset-controller,deployment-controller,"
    "disruption-controller,endpoints-controller,endpointslice-controller,garbage-collector-controller,job-controller,"
    "namespace-controller,replicaset-controller,root-ca-certificate-publisher-controller,serviceaccount-controller,"
    "serviceaccount-token-controller,statefulset-controller"
)


class PartError(Exception):
    """A part of the control plane ended or did not become ready; the text holds the end of its log."""


class Part:
    """One process of the control plane, at most."""

    def __init__(self, name: str, argv: Sequence[str], log: Path) -> None:
        self.name = name
        self._argv = argv
        self._log = log
        self._process: trio.Process | None = None
        self._wanted = False

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process unless it runs; it is not ready yet."""
        if self._process is not None and self._process.poll() is None:
            return
        self._wanted = True
        with self._log.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"]},
                # A Ctrl-C meant for the whole cluster shall not end its parts one by one.
                start_new_session=True,
            )

    async def stop(self) -> None:
        """End the process in order, and by force when it takes too long."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """End the process at once, as a crash does."""
        await self._end(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP to freeze the process; nothing happens when there is none."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    async def watch_over(self) -> None:
        """Return never; raises PartError when the process ends unexpectedly."""
        while True:
            process = self._process
            if process is not None:
                await process.wait()
                if self._wanted and process is self._process:
                    raise PartError(self.describe_end())
            await trio.sleep(POLL_INTERVAL)

    def describe_end(self) -> str:
        """Return what became of the process, and the end of its log."""
        status = None if self._process is None else self._process.returncode
        lines = self._log.read_text(errors="replace").splitlines()[-12:] if self._log.exists() else []
        return "\n".join([f"{self.name} ended with {status}; the end of its log:", *lines])

    async def _end(self, number: signal.Signals) -> None:
        process, self._wanted = self._process, False
        if process is None:
            return
        process.send_signal(number)
        with trio.move_on_after(STOP_GRACE):
            await process.wait()
        if process.poll() is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        self._process = None


def build_parts(
    binaries: Binaries, certificates: Certificates, *, address: IPv4Address, kubeconfig: Path, data: Path, logs: Path
) -> Mapping[str, Part]:
    """Return the parts in the order of their start; *address* is where the API server is reached."""
    commands = {
        "etcd": _etcd(binaries, data),
        "kube-apiserver": _apiserver(binaries, certificates, address, data, logs),
        "kube-controller-manager": _controller_manager(binaries, certificates, kubeconfig),
    }
    return {name: Part(name, argv, logs / f"{name}.log") for name, argv in commands.items()}


async def wait_etcd(client: httpx.AsyncClient) -> None:
    """Wait until etcd serves."""
    await _wait_answer(client, f"{ETCD}/health")


async def wait_apiserver(client: httpx.AsyncClient) -> None:
    """Wait until the API server is ready."""
    await _wait_answer(client, "/readyz")


async def compact_etcd(client: httpx.AsyncClient) -> int:
    """Let etcd forget all old versions; return the version that is left."""
    answer = await client.post(f"{ETCD}/v3/kv/range", json={"key": "AA==", "limit": "1", "keys_only": True})
    revision = int(answer.raise_for_status().json()["header"]["revision"])
    request = {"revision": str(revision), "physical": True}
    (await client.post(f"{ETCD}/v3/kv/compaction", json=request)).raise_for_status()
    return revision


async def _wait_answer(client: httpx.AsyncClient, url: str) -> None:
    while True:
        try:
            if (await client.get(url, timeout=2)).is_success:
                return
        except httpx.TransportError:
            pass
        await trio.sleep(POLL_INTERVAL)


def _etcd(binaries: Binaries, data: Path) -> list[str]:
    # The data is in memory and dies with the cluster: nothing is gained by flushing it.
    flags = ["--unsafe-no-fsync", "--log-level", "warn", "--quota-backend-bytes", str(2 << 30)]
    return [
        str(binaries.etcd),
        "--data-dir",
        str(data / "etcd"),
        "--listen-client-urls",
        ETCD,
        "--advertise-client-urls",
        ETCD,
        *flags,
    ]


def _apiserver(binaries: Binaries, files: Certificates, address: IPv4Address, data: Path, logs: Path) -> list[str]:
    return [
        str(binaries.apiserver),
        f"--etcd-servers={ETCD}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={SECURE_PORT}",
        f"--tls-cert-file={files.apiserver}",
        f"--tls-private-key-file={files.apiserver}",
        f"--cert-dir={data / 'apiserver'}",
        f"--client-ca-file={files.authority}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-signing-key-file={files.token_key}",
        f"--service-account-key-file={files.token_public_key}",
        "--authorization-mode=RBAC",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        f"--admission-control-config-file={write_admission(files)}",
        f"--audit-policy-file={AUDIT_POLICY}",
        f"--audit-log-path={logs / AUDIT_LOG}",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={files.apiserver}",
        f"--kubelet-client-key={files.apiserver}",
        f"--kubelet-certificate-authority={files.authority}",
        "--kubelet-preferred-address-types=InternalIP",
        # There is no kube-proxy on the API server's way: webhooks are called at their endpoints.
        "--enable-aggregator-routing=true",
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
        "--shutdown-delay-duration=0s",
        "--profiling=false",
        "--v=1",
    ]


def write_admission(files: Certificates) -> Path:
    """Have the API server show its certificate to webhooks in Services; return the file that configures it."""
    credentials = {"client-certificate": str(files.webhook_client), "client-key": str(files.webhook_client)}
    users = [{"name": "*.svc", "user": credentials}]
    kubeconfig = files.directory / "webhooks.kubeconfig"
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": users}))
    webhooks = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": webhooks}],
    }
    path = files.directory / "admission.yaml"
    path.write_text(json.dumps(configuration))
    return path


def _controller_manager(binaries: Binaries, files: Certificates, kubeconfig: Path) -> list[str]:
    return [
        str(binaries.controller_manager),
        f"--kubeconfig={kubeconfig}",
        f"--controllers={CONTROLLERS}",
        "--leader-elect=false",
        "--use-service-account-credentials=false",
        f"--service-account-private-key-file={files.token_key}",
        f"--root-ca-file={files.authority}",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
        "--bind-address=127.0.0.1",
        "--profiling=false",
        "--v=1",
    ]
