"""Endpoints of a fixed list of agents, each with a follower."""

from collections.abc import Callable, Sequence
from functools import partial

import trio

from haptic_trio.dataplane.agent.client import AgentAddress, AgentClient, open_http
from haptic_trio.dataplane.agent.endpoint import AgentLink, Cuts, RemoteAgent
from haptic_trio.dataplane.agent.follower import follow_agent
from haptic_trio.dataplane.agent.tls import RenewedContext, TlsFiles
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.presence import FixedEndpoints, Presence, Renewal, Report


class RemoteAgents:
    """The agents at *addresses*, reached with the certificates in *tls*; raises TlsFilesError.

    *report* is called with the problems of each agent, such as that it does not answer.
    """

    def __init__(self, addresses: Sequence[AgentAddress], tls: TlsFiles, *, report: Report) -> None:
        self._addresses = tuple(addresses)
        self._context = RenewedContext(tls, server=False)
        self._report = report

    async def run(
        self,
        publish: Callable[[tuple[Endpoint, ...]], None],
        *,
        task_status: trio.TaskStatus[tuple[Endpoint, ...]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Follow all agents until cancelled; call *publish* with all endpoints whenever one was renewed.

        started() passes all endpoints, whether they answer or not. See `follow_agent` for what renews one.
        """
        async with open_http(self._context) as http:
            cuts = Cuts()
            links = [AgentLink(AgentClient(http, address), cuts) for address in self._addresses]
            endpoints = FixedEndpoints(map(RemoteAgent, links), publish)
            async with trio.open_nursery() as nursery:
                for link in links:
                    presence = Presence(f"agent {link.client.address.name}", endpoints.renew, self._report)
                    nursery.start_soon(
                        partial(follow_agent, link, self._context, presence, Renewal(), is_published=True)
                    )
                task_status.started(endpoints.present)
