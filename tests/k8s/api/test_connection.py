"""Messages about failed requests contain no credentials."""

import httpx
import pytest
import trio

from haptic_trio.k8s.api.auth import Credentials
from haptic_trio.k8s.api.connection import Connection
from haptic_trio.k8s.errors import ApiError

SECRET = "MARK7f3a9c"


@pytest.mark.parametrize("status", [401, 403, 404, 422, 500, 503])
@pytest.mark.parametrize("server", ["https://scripted", f"https://user:{SECRET}@scripted"])
async def test_answer_that_repeats_the_request_does_not_show_its_credentials(server: str, status: int) -> None:
    def repeat(request: httpx.Request) -> httpx.Response:
        sent = f"why {request.headers['authorization']}?"
        return httpx.Response(status, json={"kind": "Status", "message": sent, "reason": sent})

    async def load() -> Credentials:
        await trio.lowlevel.checkpoint()
        token = "" if "@" in server else SECRET
        return Credentials(server=server, context=httpx.create_ssl_context(verify=False), token=token)

    def make_client(_credentials: Credentials) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(repeat), base_url=server)

    connection = Connection(load, make_client=make_client)
    await connection.open()
    with pytest.raises(ApiError) as raised:
        await connection.request("PUT", "/x", what="try")
    await connection.aclose()

    scheme = "Basic" if "@" in server else "Bearer"
    assert raised.value.message == f"{status} why {scheme} …?"
    assert raised.value.reason == f"why {scheme} …?"
    assert raised.value.where == "API server https://scripted"
