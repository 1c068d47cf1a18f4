"""Drives conversations with a real HAProxy, without Trio."""

import time
from collections.abc import Callable, Sequence

from haptic_trio.haproxy.plan.commands import count_replies, join_commands, split_replies
from haptic_trio.haproxy.plan.operations import Operation, Removal
from haptic_trio.haproxy.runtime.conversation import Conversation, Pause, converse


def carry_out(ask: Callable[[str], str], operations: Sequence[Operation]) -> tuple[Removal, ...]:
    """Carry out *operations* in the process that *ask* asks; return what could not be deleted yet."""
    return hold(ask, converse(operations))


def hold(ask: Callable[[str], str], conversation: Conversation) -> tuple[Removal, ...]:
    """Hold *conversation* with the process that *ask* asks and return its result."""
    replies: tuple[str, ...] | None = None
    while True:
        try:
            turn = next(conversation) if replies is None else conversation.send(replies)
        except StopIteration as stop:
            leftovers: tuple[Removal, ...] = stop.value
            return leftovers
        if isinstance(turn, Pause):
            # Time is all that the process needs here.
            time.sleep(turn.seconds)
            replies = ()
        else:
            answer = ask(join_commands(turn))
            assert count_replies(answer) >= len(turn)
            replies = split_replies(answer, len(turn))
