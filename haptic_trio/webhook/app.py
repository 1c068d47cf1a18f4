"""HTTP application of the webhook: `POST /validate`."""

import re
import time
from collections.abc import Callable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from haptic_trio.dataplane.agent.tls import Client, current_client
from haptic_trio.logs import get_logger
from haptic_trio.webhook.admission import Admission
from haptic_trio.webhook.bodies import Bodies, BodyError
from haptic_trio.webhook.decoding import Decoder
from haptic_trio.webhook.metrics import BAD, WebhookMetrics
from haptic_trio.webhook.review import ReviewError, encode_answer

PATH = "/validate"
MOST_REQUESTS = 64
"""Maximum number of concurrent requests."""
_JSON = "application/json"
_TIMEOUT = re.compile(r"(?P<number>\d{1,5}(?:\.\d{1,6})?)(?P<unit>ms|s|m)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}


class Doorkeeper:
    """Authorizes clients by their certificates."""

    def __init__(
        self, trust: Callable[[], int], allowed: frozenset[str] = frozenset(), clock: Callable[[], float] = time.time
    ) -> None:
        """*trust* returns the number of changes of the CA certificates; an empty *allowed* allows all names."""
        self._trust = trust
        self._allowed = allowed
        self._clock = clock

    def admits(self, client: Client | None) -> bool:
        """Whether *client* is authorized now: a connection may outlive its certificate or the CA certificates."""
        if client is None or client.expires <= self._clock() or client.trust != self._trust():
            return False
        return not self._allowed or bool(self._allowed & client.names)


def make_app(admission: Admission, metrics: WebhookMetrics, doorkeeper: Doorkeeper | None) -> Starlette:
    """Return the application; without a *doorkeeper*, every client is authorized."""
    running = 0
    bodies, decoder = Bodies(), Decoder()
    log = get_logger("webhook")

    async def validate(request: Request) -> Response:
        nonlocal running
        if doorkeeper is not None and not doorkeeper.admits(current_client()):
            log.warning("client not authorized", client=request.client.host if request.client else "")
            return _rejected(HTTPStatus.FORBIDDEN, "the client certificate is not authorized")
        if running >= MOST_REQUESTS:
            return _rejected(HTTPStatus.SERVICE_UNAVAILABLE, f"{running} requests are being served")
        running += 1
        try:
            return await _validate(request, bodies, decoder, admission)
        except BodyError as exc:
            return _rejected(exc.status, str(exc))
        except ReviewError as exc:
            metrics.note(BAD, 0.0)
            return _rejected(HTTPStatus.BAD_REQUEST, str(exc))
        finally:
            running -= 1

    return Starlette(routes=[Route(PATH, validate, methods=["POST"])])


async def _validate(request: Request, bodies: Bodies, decoder: Decoder, admission: Admission) -> Response:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        return _rejected(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body must be {_JSON}")
    async with bodies.reading(request) as body:
        review = decoder.decode(body)
        answer = await admission.review(review, limit=read_timeout(request.query_params.get("timeout", "")))
    return Response(encode_answer(review.uid, answer), media_type=_JSON)


def read_timeout(text: str) -> float | None:
    """Return the timeout of the API server, from the query string, in seconds; None if it is missing."""
    match = _TIMEOUT.fullmatch(text)
    return float(match["number"]) * _SECONDS[match["unit"]] if match is not None else None


def _rejected(status: HTTPStatus, message: str) -> Response:
    return PlainTextResponse(f"{message}\n", status_code=int(status))
