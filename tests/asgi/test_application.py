import pytest
import trio
from starlette.types import Receive, Scope, Send

from haptic_trio.asgi.application import call_application


async def receive_nothing() -> dict[str, object]:
    return await trio.sleep_forever()


async def discard(_message: object) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("error", [None, ZeroDivisionError("a bug")])
async def test_end_follows_the_application_also_after_an_error_which_is_raised(error: Exception | None) -> None:
    done: list[str] = []

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await trio.lowlevel.checkpoint()
        done.append("application")
        if error is not None:
            raise error

    async def end() -> None:
        await trio.lowlevel.checkpoint()
        done.append("end")

    raised: Exception | None = None
    try:
        await call_application(app, {}, receive_nothing, discard, end=end)
    except ZeroDivisionError as exc:
        raised = exc
    assert raised is error
    assert done == ["application", "end"]


async def test_a_cancelled_application_is_not_followed_by_the_end() -> None:
    done: list[str] = []

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()

    async def end() -> None:
        done.append("end")

    with trio.move_on_after(0) as scope:
        await call_application(app, {}, receive_nothing, discard, end=end)
    assert scope.cancelled_caught
    assert done == []
