"""Graphs of positions: strongly connected components, and whether a cycle is ambiguous."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_MOST_PAIRS: Final = 20_000
"""Pairs of transitions that are compared, at most; beyond it, a component counts as ambiguous."""


def strong_components(follow: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the components of the graph in which *follow* lists the successors of each node, the last ones first.

    Tarjan's algorithm, without recursion.
    """
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    for root in range(len(follow)):
        work = [] if root in order else [(root, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                order[node] = lowest[node] = len(order)
                open_nodes.append(node)
                is_open.add(node)
            elif (child := follow[node][position - 1]) in is_open:
                lowest[node] = min(lowest[node], lowest[child])
            while position < len(follow[node]) and follow[node][position] in order:
                child = follow[node][position]
                if child in is_open:
                    lowest[node] = min(lowest[node], order[child])
                position += 1
            if position < len(follow[node]):
                work += [(node, position + 1), (follow[node][position], 0)]
            elif lowest[node] == order[node]:
                yield _popped(open_nodes, is_open, node)


def _popped(open_nodes: list[int], is_open: set[int], root: int) -> list[int]:
    at = open_nodes.index(root)
    members = open_nodes[at:]
    del open_nodes[at:]
    is_open.difference_update(members)
    return members


def is_ambiguous(members: Sequence[int], follow: Sequence[Mapping[int, int]], masks: Sequence[int]) -> bool:
    """Whether one text leads from one of *members* to one of them in two ways; they can be reached from each other.

    Two paths that part are followed through all bytes that both can take,
    until they meet again.
    """
    inside = set(members)
    after = {one: [next_one for next_one in follow[one] if next_one in inside] for one in members}
    if any(follow[one][next_one] > 1 for one in members for next_one in after[one]):
        return True
    work = [(one, one) for one in members]
    seen: set[tuple[int, int]] = set()
    compared = 0
    while work:
        left, right = work.pop()
        compared += len(after[left]) * len(after[right])
        if compared > _MOST_PAIRS:
            return True
        for one in after[left]:
            for other in after[right]:
                if one == other and left != right:
                    return True
                pair = (min(one, other), max(one, other))
                if one != other and masks[one] & masks[other] and pair not in seen:
                    seen.add(pair)
                    work.append(pair)
    return False
