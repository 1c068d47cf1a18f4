"""The kubelet and the balancer of the cluster decide as real ones do."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.balancer import Listening, choose_targets, listenings_of
from tests.cluster.control_plane.serving import tail
from tests.cluster.node.environment import SourceMissingError, build_environment, fill_in
from tests.cluster.node.images import Program, command_of, repository_of
from tests.cluster.node.kubelet import choose_node
from tests.cluster.node.probes import ProbeCount
from tests.cluster.node.sandbox import POD_NETWORK, Addresses
from tests.cluster.node.status import ContainerState, Ended, build_status, find_phase
from tests.cluster.node.volumes import write_files
from tests.cluster.workloads.manifests import pod
from tests.support.kubernetes import endpoint, endpoint_slice

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:00:10Z"


class NoSources:
    def secret(self, namespace: str, name: str) -> Resource | None:
        return None

    def config_map(self, namespace: str, name: str) -> Resource | None:
        return None


def state(*, ready: bool = True, **fields: Any) -> ContainerState:
    running = {"waiting": None, "running_since": NOW, "started": True, "probed_ready": ready}
    return ContainerState(name="one", image="one", **{**running, **fields})


def ended(code: int) -> ContainerState:
    return state(running_since=None, ended=Ended(code, "", NOW, NOW))


def report(resource: Resource, *main: ContainerState, now: str = NOW) -> Resource:
    return build_status(resource, address="10.244.1.1", host="10.244.0.1", init=[], main=main, now=now)


def conditions_of(status: Resource) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["lastTransitionTime"]) for one in status["conditions"]}


def test_pod_is_ready_when_all_its_containers_are() -> None:
    assert conditions_of(report(pod("x"), state(), state()))["Ready"][0] == "True"
    assert conditions_of(report(pod("x"), state(), state(ready=False)))["Ready"][0] == "False"


def test_condition_keeps_its_time_until_it_changes() -> None:
    before = {**pod("x"), "status": report(pod("x"), state())}

    same = conditions_of(report(before, state(), now=LATER))
    other = conditions_of(report(before, state(ready=False), now=LATER))

    assert same["Ready"] == ("True", NOW)
    assert (other["Ready"], other["Initialized"]) == (("False", LATER), ("True", NOW))


@pytest.mark.parametrize(
    ("containers", "policy", "phase"),
    [
        ([ended(0), ended(0)], "Never", "Succeeded"),
        ([ended(0), ended(1)], "Never", "Failed"),
        ([ended(0), ended(1)], "OnFailure", "Running"),
        ([ended(0)], "Always", "Running"),
        ([state(), ended(1)], "Never", "Running"),
        ([ContainerState(name="one", image="one")], "Always", "Pending"),
    ],
)
def test_phase_follows_containers_and_restart_policy(containers: list[ContainerState], policy: str, phase: str) -> None:
    assert find_phase(containers, policy) == phase


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_verdict_of_a_probe_needs_its_threshold_in_a_row(answers: list[bool], successes: int, failures: int) -> None:
    count = ProbeCount(successes=successes, failures=failures)
    for index, answer in enumerate(answers):
        needed = successes if answer else failures
        row = answers[max(0, index + 1 - needed) : index + 1]
        assert count.record(answer) == (answer if row == [answer] * needed else None)


def test_variables_are_filled_in_once() -> None:
    assert fill_in("$(A)-$(B)-$$(A)-$(a-b)-$A", {"A": "$(B)", "B": "2"}) == "$(B)-2-$(A)-$(a-b)-$A"


def test_optional_source_may_be_absent_and_another_may_not() -> None:
    def variable(**reference: object) -> dict[str, object]:
        return {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "one", **reference}}}]}

    resource = pod("x")
    resource["metadata"] |= {"namespace": "default", "uid": "1"}

    assert build_environment(resource, variable(optional=True), {}, NoSources()) == {}
    with pytest.raises(SourceMissingError, match="keys"):
        build_environment(resource, variable(), {}, NoSources())


@pytest.mark.parametrize(
    "image", ["echo", "echo:1", "registry.test:5000/demo/echo", "a.test/echo:1@sha256:12", "echo@sha256:12"]
)
def test_repository_is_the_last_part_of_an_image(image: str) -> None:
    assert repository_of(image) == "echo"


def test_command_replaces_the_entrypoint_and_args_follow_it() -> None:
    program = Program(("python", "-m", "x"))

    assert command_of({"args": ["serve"]}, program) == ["python", "-m", "x", "serve"]
    assert command_of({"command": ["sh"], "args": ["-c"]}, program) == ["sh", "-c"]


def test_files_are_replaced_at_once_and_those_that_are_gone_go(tmp_path: Path) -> None:
    assert write_files(tmp_path, {"a": (b"1", 0o644), "sub/b": (b"2", 0o600)})
    reader = (tmp_path / "..data").resolve()
    assert not write_files(tmp_path, {"a": (b"1", 0o644), "sub/b": (b"2", 0o600)})
    assert write_files(tmp_path, {"a": (b"3", 0o644)})

    assert (tmp_path / "a").read_bytes() == b"3"
    assert sorted(one.name for one in tmp_path.iterdir() if not one.name.startswith("..")) == ["a"]
    assert not reader.exists()


def test_addresses_are_not_given_twice_and_come_back() -> None:
    addresses = Addresses()
    first = addresses.take()
    addresses.give_back(first)

    others = {addresses.take() for _ in range(1000)}

    assert len(others) == 1000
    assert first not in others
    assert all(one in POD_NETWORK for one in others)


def test_node_is_the_one_that_is_asked_for_or_the_least_used() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    bound = pod("x", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})

    assert choose_node(bound, ["a", "b"], ["b", "b"]) == "b"
    assert choose_node(pod("x"), ["a", "b"], ["a", "a", "b"]) == "b"


def test_connections_go_to_ready_endpoints_and_only_without_any_to_those_that_still_serve() -> None:
    ready, new = endpoint("10.244.1.1", ready=True), endpoint("10.244.1.2", ready=False, serving=False)
    going = endpoint("10.244.1.3", ready=False, serving=True, terminating=True)

    def targets(*endpoints: dict[str, Any]) -> list[tuple[str, int]]:
        return choose_targets([endpoint_slice("x", *endpoints, ports={"http": 8080, "other": 1})], "http")

    assert targets(ready, new, going) == [("10.244.1.1", 8080)]
    assert targets(new, going) == [("10.244.1.3", 8080)]
    assert targets(new) == []


def test_headless_service_is_served_nowhere_and_another_at_both_its_addresses() -> None:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]

    assert listenings_of({"spec": {"clusterIP": "None", "ports": ports}}, None) == []
    assert listenings_of({"spec": {"clusterIP": "10.96.0.9", "ports": ports}}, "10.245.0.1") == [
        Listening("10.96.0.9", 80, "http"),
        Listening("10.245.0.1", 80, "http"),
    ]


def test_tail_of_a_log_is_its_last_lines() -> None:
    assert tail(b"1\n2\n3\n", "2") == b"2\n3\n"
    assert tail(b"1\n2\n", "0") == b""
    assert tail(b"1\n", None) == b"1\n"
