"""One example of every message, for tests that go through all of them."""

from typing import TypeVar, cast

import msgspec
import trio

from haptic_trio import heartbeat
from haptic_trio import messages as m
from haptic_trio.channels import EventBuffer
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.model import Config
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.errors import Problem
from haptic_trio.httpstore import events
from haptic_trio.k8s import reflector
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.templating.values.subjects import ObjectWarning, Subject
from tests.support.components.endpoints import MemoryEndpoint, generation

EventType = TypeVar("EventType", bound=msgspec.Struct)

REF = ResourceRef("Ingress", "default", "web")
PROBLEM = Problem(message="broken", source="haproxy.cfg", line=3)
WARNING = ObjectWarning(Subject("Ingress", "default", "web"), "PortNotFound", "the Service has no port grpc")
ENDPOINT = MemoryEndpoint("local-1")
LOADED = LoadedConfig(config=Config(), version="7/", credentials=None, config_map_source="ConfigMap default/x")

_EXAMPLES: tuple[msgspec.Struct, ...] = (
    m.ResourceChanged(stores=("services",), refs=(REF,)),
    m.IndexSynchronized(counts={"services": 4}),
    m.DriftSuspected(idle=60.0),
    m.HttpFetched(url="https://lists.example.com/deny.txt", outcome="changed", seconds=0.1, bytes=90),
    m.HttpContentChanged(urls=("https://lists.example.com/deny.txt",)),
    m.HttpContentAccepted(url="https://lists.example.com/deny.txt", digest="abc", bytes=90),
    m.HttpContentRejected(url="https://lists.example.com/deny.txt", digest="abc", problem=PROBLEM, has_former=True),
    m.ReconcileTriggered(correlation="1-1", reason=m.Reason.CHANGED, changes=2),
    m.ReconcileStarted(correlation="1-1", reason=m.Reason.CHANGED, changes=2),
    m.Quarantined(correlation="1-1", ref=REF, version="5", problem=PROBLEM, has_fallback=True, quarantined=1),
    m.Released(correlation="1-1", ref=REF, quarantined=0),
    m.WarningRaised(correlation="1-1", warning=WARNING),
    m.WarningResolved(correlation="1-1", warning=WARNING),
    m.ReportsOmitted(correlation="1-1", quarantined=3, warnings=1),
    m.ConfigRendered(correlation="1-1", bytes=100, files=2, seconds=0.1, fragments_rendered=3, fragments_reused=40),
    m.RenderDiffered(correlation="1-1", outputs=("haproxy.cfg",)),
    m.ConfigPrepared(
        correlation="1-1", reason=m.Reason.CHANGED, generation=generation("a"), phases=m.Phases(render=0.1)
    ),
    m.ConfigValidated(
        correlation="1-1", reason=m.Reason.CHANGED, generation=generation("a"), phases=m.Phases(render=0.1)
    ),
    m.ValidationFailed(correlation="1-1", reason=m.Reason.CHANGED, phase="render", problems=(PROBLEM,)),
    m.ReconcileFailed(correlation="1-1", phase="render", seconds=0.1, phases=m.Phases(render=0.1)),
    m.ReconcileCompleted(correlation="1-1", outcome=m.Outcome.DEPLOYED, seconds=0.2),
    m.EndpointsDiscovered(endpoints=(ENDPOINT,)),
    m.EndpointLost(endpoint="local-1"),
    m.FleetChanged(group="local", size=2, states={"ready": 2, "draining": 1}),
    m.InstanceDraining(instance="local-1", group="local", reason="scale-down", seconds=300.0),
    m.InstanceOperationFailed(instance="local-1", group="local", error="scripted failure"),
    m.DeploymentScheduled(
        correlation="1-1", generation=generation("a"), endpoints=(ENDPOINT,), why=m.DeploymentReason.VALIDATED
    ),
    m.DeploymentStarted(correlation="1-1", generation="abc", endpoints=("local-1",)),
    m.InstanceDeployed(
        correlation="1-1",
        result=SyncResult(endpoint="local-1", changed=True, reloaded=False, operations=2, seconds=0.01),
    ),
    m.DriftRepaired(correlation="1-1", endpoint="local-1", found={"server": 2, "map": 1}, operations=3, reloaded=False),
    m.InstanceFailed(correlation="1-1", endpoint="local-1", error="scripted failure", seconds=0.1),
    m.DeploymentCompleted(correlation="1-1", generation="abc", results=(), failed=(), seconds=0.1),
    m.LeadershipChanged(is_leader=True, identity="me", transitions=1),
    m.ConfigChanged(loaded=LOADED),
    m.ConfigInvalid(version="8/", problems=(PROBLEM,)),
    m.StageReached(iteration=1, stage=5, name="reconcile", seconds=0.3),
    m.ProgressMade(iteration=1, progress="rendered 4,000 of 20,000 fragments"),
    m.IterationEnded(iteration=1, reason="configuration changed", seconds=12.0),
    m.ProblemsReported(source="web.yaml", problems=(PROBLEM,)),
)
_BY_TYPE = {type(example): example for example in _EXAMPLES}


def example_of(kind: type[EventType]) -> EventType:
    """Return an example of *kind*; KeyError for a message that has none yet."""
    return cast("EventType", _BY_TYPE[kind])


def drain(events: EventBuffer) -> list[msgspec.Struct]:
    """Return the events since the last call."""
    reported = []
    while True:
        try:
            reported.append(events.receiver.receive_nowait())
        except trio.WouldBlock:
            return reported


def message_types() -> list[type[msgspec.Struct]]:
    """Return every type of message that there is."""
    return [
        value
        for value in vars(m).values()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and value.__module__ in {m.__name__, events.__name__, heartbeat.__name__, reflector.__name__}
        and value not in {m.Phases, m.DeploymentState}
    ]
