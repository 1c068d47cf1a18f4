"""Metrics of the webhook."""

from haptic_trio.metrics import Families

ALLOWED, REJECTED, UNCHECKED, FOREIGN, BAD = "allowed", "rejected", "unchecked", "foreign", "bad_request"
OUTCOMES = (ALLOWED, REJECTED, UNCHECKED, FOREIGN, BAD)


class WebhookMetrics:
    """Requests by outcome, and their duration."""

    def __init__(self, families: Families) -> None:
        self._requests = families.counter(
            "webhook_requests",
            "Admission requests by outcome; `unchecked`: allowed because no review was possible.",
            "outcome",
        )
        self._seconds = families.histogram("webhook_duration_seconds", "Time to answer an admission request.")
        for outcome in OUTCOMES:
            self._requests.labels(outcome)

    def note(self, outcome: str, seconds: float) -> None:
        """Count one request that took *seconds*."""
        self._requests.labels(outcome).inc()
        self._seconds.observe(seconds)
