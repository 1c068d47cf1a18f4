"""Counters of watches that were opened, listed or failed, by kind."""

from collections import Counter


class WatchCounts:
    """Counts of all watches of a cluster, by plural and group, such as `ingresses.networking.k8s.io/v1`."""

    def __init__(self) -> None:
        self.connections: Counter[str] = Counter()
        """Watches that were opened: the first, and each that took the place of one that had ended."""
        self.lists: Counter[str] = Counter()
        """Complete lists, streamed ones included: the first, and one each time the server had forgotten our place."""
        self.listed = 0
        """Objects of lists, complete or not."""
        self.failures: Counter[tuple[str, str]] = Counter()
        """By kind, and by the name of the error without `Error`, such as `Expired`."""
