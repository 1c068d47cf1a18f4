"""The HTTP store in an iteration: on every replica, and from one iteration to the next."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import HttpContentAccepted, HttpContentChanged, InstanceDeployed
from tests.support.components.controller import ControllerRig, config_map, leading
from tests.support.traffic.web import Web, serving_pages

pytestmark = pytest.mark.process

HTTP = {"allowedNetworks": ["127.0.0.1/32"], "minInterval": "10ms"}


def configured(web: Web, **fields: Any) -> Resource:
    """Return a configuration that writes the text of `/text` into a comment."""
    template = f"global\n    maxconn 10\n# {{{{ http.fetch('{web.url('/text')}', interval='20ms') }}}}\n"
    return config_map(http=HTTP, haproxyConfig={"template": template}, **fields)


async def test_follower_keeps_contents_fresh_and_deploys_them_once_it_leads(rig: ControllerRig) -> None:
    async with serving_pages() as web:
        web.text("/text", "one", etag="1")
        rig.cluster.put(configured(web))
        rig.process.leadership.put(leading(is_leader=False))
        async with rig.running():
            await rig.wait(HttpContentAccepted)
            web.text("/text", "changed", etag="2")
            await rig.wait(HttpContentAccepted, lambda event: event.bytes == len("changed"))
            assert rig.events.all(HttpContentChanged)
            assert rig.events.all(InstanceDeployed) == []
            rig.process.leadership.put(leading())

            await rig.deployed("# changed")


async def test_contents_that_no_template_of_the_next_iteration_uses_are_forgotten(rig: ControllerRig) -> None:
    async with serving_pages() as web:
        web.text("/text", "one", etag="1")
        rig.cluster.put(configured(web))
        async with rig.running():
            await rig.deployed("# one")
            rig.cluster.put(config_map(number=77))
            await rig.deployed("maxconn 77")

            assert len(rig.process.retained.contents) == 0
