"""Fill levels of channels and sizes of stores."""

import trio

from haptic_trio.channels import Channels, EventBuffer, Latest
from haptic_trio.console.protocol import ChannelView, StoreView
from haptic_trio.k8s.store import Stores


class Gauges:
    """Reads channels; remembers the most that it has found in each, for as long as these channels exist."""

    def __init__(self) -> None:
        self._channels: Channels | None = None
        self._high: dict[str, int] = {}

    def read(self, channels: Channels | None, events: EventBuffer) -> tuple[ChannelView, ...]:
        """Return every channel of the iteration, if one runs, and that of the events."""
        if channels is not self._channels:
            self._channels = channels
            self._high = {name: high for name, high in self._high.items() if name == "events"}
        found = []
        for name, end in vars(channels).items() if channels is not None else ():
            if isinstance(end, trio.MemorySendChannel):
                found.append(self._channel(name.removesuffix("_in"), end.statistics()))
            elif isinstance(end, Latest):
                held = int(end.version > 0)
                found.append(ChannelView(name=name, kind="latest", used=held, size=1, high=held, puts=end.version))
        found.append(self._channel("events", events.receiver.statistics()))
        return tuple(found)

    def _channel(self, name: str, now: trio.MemoryChannelStatistics) -> ChannelView:
        high = self._high[name] = max(now.current_buffer_used, self._high.get(name, 0))
        return ChannelView(
            name=name,
            kind="channel",
            used=now.current_buffer_used,
            size=int(now.max_buffer_size),
            high=high,
            senders=now.open_send_channels,
            receivers=now.open_receive_channels,
            waiting_senders=now.tasks_waiting_send,
            waiting_receivers=now.tasks_waiting_receive,
        )


def read_stores(stores: Stores | None) -> tuple[StoreView, ...]:
    """Return the size of each store."""
    if stores is None:
        return ()
    return tuple(
        StoreView(name=name, objects=len(store), version=store.version) for name, store in sorted(stores.items())
    )
