"""A way to the API server that a test can cut, in the cluster's network."""

import trio

from tests.cluster.control_plane.processes import SECURE_PORT
from tests.cluster.node.sandbox import GATEWAY
from tests.cluster.workloads.client import Cluster
from tests.cluster.workloads.relay import relay


class Interruptions:
    """Passes connections on to the API server, until they are cut.

    Pods take this way by `environment`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: set[trio.CancelScope] = set()
        self._port = 0
        self.cuts = 0
        """Connections that were cut so far."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a container finds the API server here; known once `run` has started."""
        return {"KUBERNETES_SERVICE_HOST": str(GATEWAY), "KUBERNETES_SERVICE_PORT": str(self._port)}

    def cut(self) -> None:
        """End every connection that is open now."""
        self.cuts += len(self._open)
        for scope in self._open:
            scope.cancel(reason="cut")

    async def cut_every(self, interval: float) -> None:
        """Cut all connections again and again, until cancelled."""
        while True:
            await trio.sleep(interval)
            self.cut()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pass connections on until cancelled."""
        listening = self._cluster.network.create_socket()
        await listening.bind((str(GATEWAY), 0))
        listening.listen(128)
        self._port = listening.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._pass_on, [trio.SocketListener(listening)])

    async def _pass_on(self, client: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                server = await self._cluster.connect(str(GATEWAY), SECURE_PORT)
                await relay(client, server)
            except OSError:
                await trio.aclose_forcefully(client)
            finally:
                self._open.discard(scope)
