"""The cluster does what tests rely on: real control plane, Pods that run, and nothing left of it afterwards."""

import json
import os
import signal
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from haptic_trio.k8s.resource import Resource
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.manifests import PORT, deployment, echo_container, pod, secret, service

pytestmark = pytest.mark.cluster
LIMIT = 90.0


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


async def ask(cluster: Cluster, url: str) -> dict[str, Any]:
    async with cluster.http() as client:
        answer: dict[str, Any] = (await client.get(url)).json()
    return answer


async def wait_ready(cluster: Cluster, namespace: str, name: str) -> Resource:
    return (await cluster.wait_pods(namespace, f"app={name}", 1))[0]


async def wait_logged(cluster: Cluster, namespace: str, name: str, text: str) -> str:
    async def read() -> str:
        logged = await cluster.logs(namespace, name)
        return logged if text in logged else ""

    return await until(read)


def is_on_machine(*paths: str) -> bool:
    return any(Path(one).exists() for one in paths)


def claim_status(**wanted: object) -> Any:
    def holds(found: Resource | None) -> bool:
        states = ((found or {}).get("status") or {}).get("containerStatuses") or [{}]
        return all(states[0].get(name) == value for name, value in wanted.items())

    return holds


async def test_control_plane_is_the_real_one_and_its_clients_are_authenticated(cluster: Cluster) -> None:
    version = await cluster.api.get("/version")
    nodes, _ = await cluster.api.list("/api/v1/nodes")

    assert version["gitVersion"] == "v1.36.1"
    assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2"]
    context = ssl.create_default_context(cafile=cluster.state.certificates.authority)
    async with httpx.AsyncClient(verify=context) as nothing:
        rejected = await nothing.get(f"{cluster.state.api_url}/api/v1/pods")
        assert (rejected.status_code, "system:anonymous" in rejected.text) == (403, True)


async def test_pods_of_a_deployment_answer_at_addresses_of_their_own(cluster: Cluster, namespace: str) -> None:
    with trio.fail_after(LIMIT):
        await cluster.apply([deployment("echo", 3)], namespace)
        pods = await cluster.wait_pods(namespace, "app=echo", 3)
        answers = {
            one["metadata"]["name"]: await ask(cluster, f"http://{one['status']['podIP']}:{PORT}/x") for one in pods
        }

    assert {name: answer["pod"] for name, answer in answers.items()} == {name: name for name in answers}
    assert len({answer["address"] for answer in answers.values()}) == 3
    assert {one["spec"]["nodeName"] for one in pods} == {"node-1", "node-2"}


async def test_secret_is_mounted_and_its_change_reaches_the_pod_whole(cluster: Cluster, namespace: str) -> None:
    volumes = [
        {"name": "keys", "secret": {"secretName": "keys", "items": [{"key": "one", "path": "sub/one"}]}},
        {"name": "all", "secret": {"secretName": "keys"}},
    ]
    mounts = [{"name": "keys", "mountPath": "/etc/rig-keys"}, {"name": "all", "mountPath": "/srv/all"}]
    with trio.fail_after(LIMIT):
        await cluster.apply([pod("echo", echo_container(volumeMounts=mounts), volumes=volumes)], namespace)
        await cluster.wait(
            pod_path(namespace, "echo"), lambda found: "keys not found" in json.dumps((found or {}).get("status"))
        )
        await cluster.apply([secret("keys", one="1", two="2")], namespace)
        address = (await wait_ready(cluster, namespace, "echo"))["status"]["podIP"]
        first = await ask(cluster, f"http://{address}:{PORT}/file/etc/rig-keys/sub/one")
        await cluster.apply([secret("keys", one="changed", two="too")], namespace)

        async def is_new() -> bool:
            return bool((await ask(cluster, f"http://{address}:{PORT}/file/srv/all/two"))["content"] == "too")

        await until(is_new)
        second = await ask(cluster, f"http://{address}:{PORT}/file/srv/all/one")

    assert first["content"] == "1"
    assert second["content"] == "changed"
    assert not is_on_machine("/etc/rig-keys", "/var/run/secrets/kubernetes.io"), "mounted in the container only"


async def test_environment_comes_from_fields_secrets_and_config_maps(cluster: Cluster, namespace: str) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"MODE": "fast"}}
    environment = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "one"}}},
        {"name": "GREETING", "value": "$(PASSWORD)-$(MODE)-$(UNKNOWN)-$$(MODE)"},
    ]
    container = {
        "name": "shell",
        "image": "host",
        "command": ["sh", "-c", "env; pwd; exec sleep 1000"],
        "workingDir": "/var/work",
        "env": environment,
        "envFrom": [{"configMapRef": {"name": "settings"}}],
    }
    with trio.fail_after(LIMIT):
        await cluster.apply([secret("keys", one="1"), config_map, pod("shell", container)], namespace)
        address = (await wait_ready(cluster, namespace, "shell"))["status"]["podIP"]
        logged = await wait_logged(cluster, namespace, "shell", "/var/work")
        inside = await cluster.exec_in(namespace, "shell", ["sh", "-c", "echo $GREETING; hostname; cat"], content=b"in")

    assert f"POD_IP={address}\n" in logged
    assert inside.output.decode().split() == ["1-fast-$(UNKNOWN)-$(MODE)", "shell", "in"]


async def test_account_token_lets_a_pod_speak_to_the_api_server_within_its_rights(
    cluster: Cluster, namespace: str
) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    script = (
        "cd /var/run/secrets/kubernetes.io/serviceaccount;"
        'curl -s -o /dev/null -w "%{http_code}" --cacert ca.crt -H "Authorization: Bearer $(cat token)"'
        " https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$(cat namespace)/$1"
    )
    with trio.fail_after(LIMIT):
        await cluster.apply([role, binding, pod("echo")], namespace)
        await wait_ready(cluster, namespace, "echo")
        allowed = await cluster.exec_in(namespace, "echo", ["sh", "-c", script, "-", "configmaps"])
        denied = await cluster.exec_in(namespace, "echo", ["sh", "-c", script, "-", "secrets"])

    assert (allowed.output, denied.output) == (b"200", b"403")


async def test_readiness_decides_who_gets_new_connections(cluster: Cluster, namespace: str) -> None:
    with trio.fail_after(LIMIT):
        await cluster.apply([deployment("echo", 2), service("echo", type="LoadBalancer")], namespace)
        one, other = await cluster.wait_pods(namespace, "app=echo", 2)
        path = f"/api/v1/namespaces/{namespace}/services/echo"
        published = await cluster.wait(path, lambda found: found and found["status"]["loadBalancer"].get("ingress"))
        address = published["status"]["loadBalancer"]["ingress"][0]["ip"]
        seen = set[str]()
        while len(seen) < 2:
            seen.add(await who_answers(cluster, address))
        async with cluster.http() as client:
            await client.post(f"http://{one['status']['podIP']}:{PORT}/unready")
        await cluster.wait_pods(namespace, "app=echo,none=none", 0)
        await cluster.wait(pod_path(namespace, one["metadata"]["name"]), claim_status(ready=False))
        await wait_endpoints(cluster, namespace, "echo", {other["status"]["podIP"]})
        late = {await who_answers(cluster, address) for _ in range(6)}
        at_cluster_address = await who_answers(cluster, published["spec"]["clusterIP"])

    assert late == {other["metadata"]["name"]}
    assert at_cluster_address == other["metadata"]["name"]


async def who_answers(cluster: Cluster, address: str) -> str:
    while True:
        try:
            return str((await ask(cluster, f"http://{address}/"))["pod"])
        except httpx.ConnectError:
            # The Service's address comes a moment after its status.
            await trio.sleep(0.02)
        except httpx.TransportError:
            await trio.sleep(0.02)


async def wait_endpoints(cluster: Cluster, namespace: str, name: str, addresses: set[str]) -> None:
    while True:
        slices, _ = await cluster.api.list(
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            labelSelector=f"kubernetes.io/service-name={name}",
        )
        endpoints = [endpoint for one in slices for endpoint in one.get("endpoints") or ()]
        if {one["addresses"][0] for one in endpoints if one["conditions"]["ready"]} == addresses:
            return
        await trio.sleep(0.02)


async def test_deletion_lets_a_process_finish_and_ends_one_that_does_not(cluster: Cluster, namespace: str) -> None:
    stubborn = echo_container(args=["--ignore-term"])
    with trio.fail_after(LIMIT):
        await cluster.apply([pod("polite", terminationGracePeriodSeconds=15), pod("stubborn", stubborn)], namespace)
        address = (await wait_ready(cluster, namespace, "polite"))["status"]["podIP"]
        await wait_ready(cluster, namespace, "stubborn")
        answers = []

        async def ask_slowly() -> None:
            answers.append(await ask(cluster, f"http://{address}:{PORT}/slow?seconds=1"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_slowly)
            await wait_logged(cluster, namespace, "polite", "asked to be slow")
            begun = trio.current_time()
            for name in ("polite", "stubborn"):
                await cluster.delete(pod(name), namespace)
            for name in ("polite", "stubborn"):
                await cluster.wait(pod_path(namespace, name), lambda found: found is None)
        took = trio.current_time() - begun

    assert [one["path"] for one in answers] == ["/slow?seconds=1"]
    assert took >= 1.9, "the stubborn one has two seconds"
    with pytest.raises((OSError, trio.TooSlowError)), trio.fail_after(0.5):
        await cluster.connect(address, PORT)


async def test_process_that_ends_is_started_again_and_its_log_is_kept(cluster: Cluster, namespace: str) -> None:
    with trio.fail_after(LIMIT):
        await cluster.apply([pod("echo")], namespace)
        address = (await wait_ready(cluster, namespace, "echo"))["status"]["podIP"]
        async with cluster.http() as client:
            await client.post(f"http://{address}:{PORT}/exit?status=7")
        again = await cluster.wait(pod_path(namespace, "echo"), claim_status(restartCount=1, ready=True))
        previous = await cluster.logs(namespace, "echo", previous="true")
        last = await cluster.logs(namespace, "echo", tailLines=1)
        await cluster.signal_container(namespace, "echo", signal.SIGKILL)
        killed = await cluster.wait(pod_path(namespace, "echo"), claim_status(restartCount=2, ready=True))

    def ended(found: Mapping[str, Any]) -> int:
        return int(found["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"])

    assert (ended(again), ended(killed)) == (7, 137)
    assert f"listening on {PORT}" in previous
    assert last.strip() == "GET /ready" or last.startswith("listening")
    assert killed["status"]["podIP"] == address, "the address is the Pod's, not the process's"


async def test_probes_and_hooks_work_as_declared(cluster: Cluster, namespace: str) -> None:
    started = {"exec": {"command": ["test", "-e", "/tmp/started"]}, "periodSeconds": 1, "failureThreshold": 20}
    alive = {"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 1, "failureThreshold": 1}
    hook = {"preStop": {"httpGet": {"path": "/bye", "port": "http"}}}
    container = echo_container(startupProbe=started, livenessProbe=alive, lifecycle=hook)
    path = pod_path(namespace, "echo")
    with trio.fail_after(LIMIT):
        await cluster.apply([pod("echo", container)], namespace)
        waiting = await cluster.wait(path, claim_status(started=False, restartCount=0))
        await wait_logged(cluster, namespace, "echo", "listening")
        await cluster.exec_in(namespace, "echo", ["touch", "/tmp/started"])
        address = (await wait_ready(cluster, namespace, "echo"))["status"]["podIP"]
        async with cluster.http() as client:
            await client.post(f"http://{address}:{PORT}/unready")
        again = await cluster.wait(path, claim_status(restartCount=1, started=False))
        await wait_logged(cluster, namespace, "echo", "listening")
        # Followed from before the end: the pod may be gone when its last output is read.
        async with (
            cluster.client.stream("GET", f"{path}/log", params={"follow": "true"}) as response,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(cluster.delete, pod("echo"), namespace)
            logged = [line async for line in response.aiter_lines()]

    assert waiting["status"]["containerStatuses"][0]["ready"] is False
    assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
    assert any("GET /bye" in line for line in logged)
    assert any("asked to end" in line for line in logged)


async def test_logs_are_followed_until_the_container_ends(cluster: Cluster, namespace: str) -> None:
    script = "for i in 1 2 3; do echo line $i; sleep 0.2; done"
    counting = {"name": "count", "image": "host", "command": ["sh", "-c", script]}
    path = f"{pod_path(namespace, 'count')}/log"
    with trio.fail_after(LIMIT):
        await cluster.apply([pod("count", counting, restartPolicy="Never")], namespace)
        await cluster.wait(pod_path(namespace, "count"), lambda found: found and found["status"]["phase"] != "Pending")
        async with cluster.client.stream("GET", path, params={"follow": "true"}) as response:
            lines = [line async for line in response.aiter_lines()]
        done = await cluster.wait(
            pod_path(namespace, "count"), lambda found: found and found["status"]["phase"] == "Succeeded"
        )

    assert lines == ["line 1", "line 2", "line 3"]
    assert done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_init_containers_come_first_and_share_directories(cluster: Cluster, namespace: str) -> None:
    share = [{"name": "shared", "mountPath": "/shared"}]
    first = {
        "name": "first",
        "image": "host",
        "command": ["sh", "-c", "echo made >/shared/file"],
        "volumeMounts": share,
    }
    side = {**echo_container(name="side"), "restartPolicy": "Always"}
    main = echo_container(
        args=["--port", "8081"], ports=[{"name": "http", "containerPort": 8081}], volumeMounts=share,
        securityContext={"readOnlyRootFilesystem": True},
    )  # fmt: skip
    with trio.fail_after(LIMIT):
        spec: dict[str, Any] = {"volumes": [{"name": "shared", "emptyDir": {}}], "initContainers": [first, side]}
        await cluster.apply([pod("both", main, **spec)], namespace)
        address = (await wait_ready(cluster, namespace, "both"))["status"]["podIP"]
        made = await ask(cluster, f"http://{address}:8081/file/shared/file")
        beside = await ask(cluster, f"http://{address}:{PORT}/")
        written = await cluster.exec_in(namespace, "both", ["sh", "-c", "touch /root-is-read-only"])
        shared = await cluster.exec_in(namespace, "both", ["sh", "-c", "touch /shared/is-not"])

    assert (made["content"], beside["pod"]) == ("made\n", "both")
    assert (written.status, shared.status) == (1, 0)


async def test_image_without_a_program_waits_until_there_is_one(cluster: Cluster, namespace: str) -> None:
    container = {"name": "new", "image": "registry.test/unheard-of@sha256:0", "args": ["1000"]}
    with trio.fail_after(LIMIT):
        await cluster.apply([pod("new", container)], namespace)
        await cluster.wait(pod_path(namespace, "new"), lambda found: "ErrImagePull" in json.dumps(found))
        await cluster.add_image("unheard-of", "sleep")
        await wait_ready(cluster, namespace, "new")


async def test_daemon_set_has_a_pod_on_each_node(cluster: Cluster, namespace: str) -> None:
    template = deployment("echo", 1)["spec"]["template"]
    daemons: Resource = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "echo"},
        "spec": {"selector": {"matchLabels": {"app": "echo"}}, "template": template},
    }
    with trio.fail_after(LIMIT):
        await cluster.apply([daemons], namespace)
        pods = await cluster.wait_pods(namespace, "app=echo", 2)

    assert {one["spec"]["nodeName"] for one in pods} == {"node-1", "node-2"}


async def test_process_that_a_container_leaves_behind_ends_with_it(cluster: Cluster, namespace: str) -> None:
    marker = f"98765{os.getpid()}"
    leaver = {"name": "leaver", "image": "host", "command": ["sh", "-c", f"setsid sleep {marker} & exec sleep 1000"]}
    with trio.fail_after(LIMIT):
        await cluster.apply([pod("leaver", leaver)], namespace)
        await wait_ready(cluster, namespace, "leaver")

        async def is_left() -> bool:
            return bool(processes_with(f"sleep\0{marker}"))

        await until(is_left)
        await cluster.delete(pod("leaver"), namespace, grace=1)
        await cluster.wait(pod_path(namespace, "leaver"), lambda found: found is None)

    assert not processes_with(f"sleep\0{marker}")


def processes_with(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and text in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:
            pass
    return found
