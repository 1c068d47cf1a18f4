"""Follower of one Data Plane API: probes it at intervals, and renews the endpoint after a failed probe."""

import random
from typing import Final, NoReturn

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.dataplane.dataplaneapi.client import ApiClient
from haptic_trio.dataplane.dataplaneapi.endpoint import DataplaneApiEndpoint
from haptic_trio.dataplane.dataplaneapi.probe import probe_api
from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.dataplane.presence import Presence, Renewal
from haptic_trio.errors import text_of
from haptic_trio.logs import get_logger

PROBE_INTERVAL: Final = 10.0
"""Seconds between two probes: the API has no events."""
FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 5.0
"""Seconds before the next attempt: doubled from the first to the longest."""


async def follow_api(api: ApiClient, presence: Presence, renewal: Renewal, *, is_published: bool) -> NoReturn:
    """Publish a new endpoint for the first answer after a failed probe or a *renewal*; runs until cancelled.

    Without *is_published* the first answer publishes the endpoint too.
    """
    log = get_logger("dataplaneapi").bind(endpoint=api.endpoint)
    backoff = Backoff(base=FIRST_DELAY, limit=LONGEST_DELAY)
    logged = ""
    while True:
        try:
            probe = await probe_api(api)
        except EndpointError as exc:
            if presence.failed(str(exc)):
                log.warning("data plane api does not answer", error=text_of(exc))
            # Deployments failed meanwhile, and their retry may be up to a minute off.
            is_published = False
            delay = backoff.next()
        else:
            presence.answered()
            backoff.reset()
            if probe.haproxy_version != logged:
                logged = probe.haproxy_version
                log.info("data plane api answers", haproxy=logged, api=probe.api_version)
            if not is_published:
                is_published = True
                presence.publish(DataplaneApiEndpoint(api))
            delay = PROBE_INTERVAL * random.uniform(0.8, 1.0)  # noqa: S311 - not for secrets
        with trio.move_on_after(delay):
            await renewal.wait()
            is_published = False
    raise AssertionError("the loop ends by an exception")
