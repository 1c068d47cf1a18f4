"""Pods as instances, on an API server: created, rotated, drained, taken over, and terminated from outside."""

import json
from pathlib import Path

import msgspec
import pytest
import trio

from haptic_trio.config.model import Duration
from haptic_trio.fleet.model import InstanceState
from haptic_trio.fleet.providers.pod_objects import MARK, POD_TEMPLATES, PODS, RECORD, SERVING
from haptic_trio.messages import InstanceDraining, InstanceOperationFailed
from tests.fleet.rig.pod_rig import INSTANCES, LABELS, NAMESPACE, make_template, pod_rig
from tests.support.messages import drain as drain_events


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


async def test_pods_are_created_from_the_template_and_owned_by_it(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        names = await rig.settled(replica, 2)
        pod = rig.pods[names[0]]
        assert names[0].startswith("haptic-trio-")
        assert pod["metadata"]["labels"] == {**LABELS, MARK: "haptic-trio", SERVING: "true"}
        assert pod["metadata"]["annotations"]["note"] == "kept"
        assert json.loads(pod["metadata"]["annotations"][RECORD])["state"] == "ready"
        (owner,) = pod["metadata"]["ownerReferences"]
        template_uid = rig.server.stored(POD_TEMPLATES, NAMESPACE, "haproxy")["metadata"]["uid"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
            "PodTemplate",
            "haproxy",
            template_uid,
            True,
        )
        assert pod["spec"]["containers"][0]["image"] == "haproxy:1"


async def test_pods_follow_size_template_and_revision_without_falling_below_the_size(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        await rig.settled(replica, 2)
        fewest = [9]

        async def count() -> None:
            while True:
                ready = [name for name in rig.serving if name in replica.ready]
                fewest.append(len(ready))
                await trio.sleep(0.005)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            replica.want(size=4)
            await rig.settled(replica, 4)
            replica.want(size=2)
            former = await rig.settled(replica, 2)
            rig.server.put(make_template("haproxy:2"))
            await rig.wait(lambda: not set(former) & set(rig.pods), replica)
            former = await rig.settled(replica, 2)
            assert {pod["spec"]["containers"][0]["image"] for pod in rig.pods.values()} == {"haproxy:2"}
            replica.want(revision="another")
            await rig.wait(lambda: not set(former) & set(rig.pods), replica)
            await rig.settled(replica, 2)
            nursery.cancel_scope.cancel()
        assert min(fewest) >= 2


async def test_draining_pod_leaves_the_service_and_waits_for_its_clients(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        first, _ = await rig.settled(replica, 2)
        rig.sessions[first] = 3
        replica.want(size=1, drain_timeout=Duration(60))
        await rig.wait(lambda: len(rig.serving) == 1, replica)
        asked = rig.sessions.asked[first]
        await rig.wait(lambda: rig.sessions.asked[first] >= asked + 4, replica)
        assert first in rig.pods
        assert rig.pods[first]["metadata"]["labels"][SERVING] == "false"
        rig.sessions[first] = 0
        await rig.settled(replica, 1)


@pytest.mark.parametrize("sessions", [2, None])
async def test_drain_with_unknown_connections_ends_at_its_deadline(kubeconfig: Path, sessions: int | None) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        first, _ = await rig.settled(replica, 2)
        rig.sessions[first] = sessions
        replica.want(size=1, drain_timeout=Duration(1))
        await rig.settled(replica, 1)
        assert first not in rig.pods


async def test_deletion_from_outside_is_a_notice_and_replaces_the_pod_at_once(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        first, second = await rig.settled(replica, 2)
        rig.sessions[first] = 1
        rig.kubelet.doom(first, 30)
        await rig.wait(lambda: len(replica.ready) == 2 and first not in replica.ready, replica)
        (leaving,) = [record for record in replica.records if record.id == first]
        assert (leaving.state, leaving.is_doomed) == (InstanceState.DRAINING, True)
        # It has what is left of its grace period, and no more than it may have.
        assert leaving.drain_deadline is not None
        assert leaving.drain_started_at is not None
        assert leaving.drain_deadline - leaving.drain_started_at <= 5.0
        reasons = [event.reason for event in drain_events(replica.events) if isinstance(event, InstanceDraining)]
        assert reasons == ["terminating"]
        rig.kubelet.remove(first)
        assert second in await rig.settled(replica, 2)


async def test_eviction_is_a_notice_before_the_pod_is_deleted(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        first, _ = await rig.settled(replica, 2)
        rig.kubelet.is_working = False
        pod = rig.pods[first]
        conditions = [*pod["status"]["conditions"], {"type": "DisruptionTarget", "status": "True"}]
        rig.server.put({**pod, "status": {**pod["status"], "conditions": conditions}})
        await rig.wait(lambda: first not in rig.serving, replica)
        rig.kubelet.is_working = True
        await rig.settled(replica, 2)


async def test_pod_that_disappears_without_notice_is_replaced(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        first, second = await rig.settled(replica, 2)
        rig.kubelet.remove(first)
        assert second in await rig.settled(replica, 2)


async def test_unready_pod_is_replaced_before_it_is_removed(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        first, second = await rig.settled(replica, 2)
        rig.kubelet.sick.add(first)
        await rig.wait(lambda: first not in rig.pods, replica)
        assert second in await rig.settled(replica, 2)


async def test_next_leader_continues_the_work_of_its_predecessor(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        one, two = rig.replica(), rig.replica(is_leader=False)
        first, second = await rig.settled(one, 2)
        rig.sessions[first] = 1
        one.want(size=1, drain_timeout=Duration(60))
        two.want(size=1, drain_timeout=Duration(60))
        await rig.wait(lambda: first not in rig.serving, one)
        (before,) = [record for record in one.records if record.id == first]
        one.lead(False)
        two.lead(True)
        await rig.wait(lambda: [record.id for record in two.records] == [first, second], two)
        (after,) = [record for record in two.records if record.id == first]
        assert after.drain_deadline == before.drain_deadline
        # A request in progress may end after the next leader has read the records.
        await rig.wait(lambda: not one.owner.is_leading)
        rig.sessions[first] = 0
        assert await rig.settled(two, 1) == [second]
        # No leader has created a surplus pod.
        created = [request for request in rig.server.requests if request.startswith("POST") and "/pods" in request]
        assert len(created) == 2


async def test_next_leader_recovers_from_a_leader_that_dies_at_any_request(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        for number in range(8):
            begun = len(rig.server.requests)
            replica = rig.replica(is_leader=True)
            replica.want(size=1 + number % 3, revision=str(number))

            def has_asked(replica_begun: int = begun, further: int = number) -> bool:
                return len(rig.server.requests) > replica_begun + 2 + further

            await rig.wait(has_asked, replica)
            replica.lead(False)
        replica = rig.replica()
        replica.want(size=2, revision="last")
        await rig.settled(replica, 2)


async def test_foreign_pods_stay_unchanged(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        other = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "other", "namespace": NAMESPACE, "labels": {**LABELS, MARK: "somebody-else"}},
            "spec": {},
        }
        rig.server.put(other)
        replica = rig.replica()
        await rig.wait(lambda: len(replica.ready) == 2, replica)
        replica.want(size=0)
        await rig.wait(lambda: list(rig.pods) == ["other"], replica)


async def test_marked_pod_without_a_record_is_adopted_and_rotated_out(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        stray = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "stray", "namespace": NAMESPACE, "labels": {**LABELS, MARK: "haptic-trio"}},
            "spec": {},
        }
        rig.server.put(stray)
        await rig.wait(lambda: rig.pods["stray"].get("status") is not None)
        replica = rig.replica()
        await rig.wait(lambda: "stray" in [record.id for record in replica.records], replica)
        await rig.settled(replica, 2)
        assert "stray" not in rig.pods


async def test_unusable_template_is_reported_and_changes_nothing(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        former = await rig.settled(replica, 2)
        rig.server.put(make_template("haproxy:2", labels={"app": "other"}))
        await replica.reports.wait(
            lambda reports: "labels app=haproxy of `podSelector` are missing" in reports.messages
        )
        assert await rig.settled(replica, 2) == former
        # New pods are created from the last usable template.
        rig.kubelet.remove(former[0])
        await rig.settled(replica, 2)


async def test_no_pod_is_created_while_the_template_is_missing(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        former = await rig.settled(replica, 2)
        rig.server.remove(make_template())
        await replica.reports.wait(lambda reports: "not found" in reports.messages)
        assert await rig.settled(replica, 2) == former
        begun = len(rig.server.requests)
        replica.want(size=3)
        await rig.wait(
            lambda: any(isinstance(event, InstanceOperationFailed) for event in drain_events(replica.events)), replica
        )
        assert not [request for request in rig.server.requests[begun:] if request.startswith("POST")]
        rig.server.put(make_template())
        await rig.settled(replica, 3)


async def test_rejected_pod_is_not_retried_before_something_changes(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        await rig.settled(replica, 2)
        rig.server.faults.failure = 422
        rig.server.faults.failing = 1
        replica.want(size=3)
        await rig.wait(lambda: rig.server.faults.failing == 0, replica)
        begun = len(rig.server.requests)
        # real time: ten passes, none of which may ask again
        await trio.sleep(1.0)
        assert not [request for request in rig.server.requests[begun:] if request.startswith("POST")]
        replica.want(size=3, drain_timeout=Duration(4))
        await rig.settled(replica, 3)


async def test_pods_stay_unchanged_once_no_template_is_configured(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        former = await rig.settled(replica, 2)
        replica.config.put(msgspec.structs.replace(INSTANCES, pod_template="", size=0))
        # real time: five passes, none of which may change a pod
        await trio.sleep(0.5)
        assert sorted(rig.pods) == sorted(former)
        assert rig.server.stored(PODS, NAMESPACE, former[0])["metadata"]["labels"][SERVING] == "true"


async def test_writes_of_others_to_a_pod_are_preserved(kubeconfig: Path) -> None:
    async with pod_rig(kubeconfig) as rig:
        replica = rig.replica()
        first, _ = await rig.settled(replica, 2)
        pod = rig.pods[first]
        labels = {**pod["metadata"]["labels"], "added": "by others"}
        rig.server.put({**pod, "metadata": {**pod["metadata"], "labels": labels}})
        rig.sessions[first] = 1
        replica.want(size=1, drain_timeout=Duration(60))
        await rig.wait(lambda: first not in rig.serving, replica)
        assert rig.pods[first]["metadata"]["labels"]["added"] == "by others"
