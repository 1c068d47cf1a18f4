"""The process's Prometheus metrics: one registry, one attribute each."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Every metric that the program exports, created once per process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"haptic_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"haptic_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"haptic_{name}", text, labels, registry=self.registry, buckets=DURATION_BUCKETS)

        self.reconciliations = counter("reconciliation", "Reconciliations that ended, by outcome.", "outcome")
        self.reconciliation_seconds = histogram(
            "reconciliation_duration_seconds", "From trigger to the end of the reconciliation."
        )
        self.reconciliation_errors = counter("reconciliation_errors", "Failed reconciliations, by phase.", "phase")
        self.phase_seconds = histogram("phase_duration_seconds", "Time spent in one phase of a cycle.", "phase")
        self.fragments = counter("fragments", "Fragments of configurations, by what was done with them.", "outcome")
        self.render_differences = counter(
            "render_differences",
            "Outputs put together from reused parts that were not what rendering anew gives: bugs.",
        )
        self.validations = counter("validation", "Rendered configurations that were checked, by result.", "result")
        self.deployments = counter("deployment", "Deployments to one endpoint, by result.", "result")
        self.deployment_seconds = histogram("deployment_duration_seconds", "Time of a deployment to one endpoint.")
        self.reloads = counter("haproxy_reloads", "Reloads that deployments caused, by first reason.", "reason")
        self.runtime_operations = counter("haproxy_runtime_operations", "Changes applied without a reload.")
        self.drift = counter("haproxy_drift", "Things that others had changed, and that were put right.", "kind")
        self.quarantined = gauge("quarantined_objects", "Objects that are held because they cannot be rendered.")
        self.resources = gauge("resource_count", "Objects in a store.", "type")
        self.endpoints = gauge("endpoints", "HAProxy instances that can be deployed to.")
        self.fleet_size = gauge("fleet_size", "Instances of the controller's own that shall be ready.", "group")
        self.fleet_instances = gauge(
            "fleet_instances", "Instances of the controller's own, by state.", "group", "state"
        )
        self.fleet_drains = counter("fleet_drains", "Drains of instances that were begun, by reason.", "reason")
        self.fleet_errors = counter("fleet_errors", "What failed about instances and is tried again.", "group")
        self.iterations = counter("iterations", "Iterations that ended, by reason.", "reason")
        self.config_invalid = counter("config_invalid", "Changed configurations that were refused.")
        self.facts_lost = counter("facts_lost", "Facts that the commentator was too slow for.")
        self.is_leader = gauge("leader_election_is_leader", "1 while this replica deploys.")
        self.transitions = counter("leader_election_transitions", "Changes of leadership seen by this replica.")
