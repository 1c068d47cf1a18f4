"""Fetcher: redirects, retries, and one deadline for the whole fetch."""

import random
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import SplitResult, urljoin

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.httpstore.addresses import Zone
from haptic_trio.httpstore.content import Content, FetchError
from haptic_trio.httpstore.request import FetchPolicy, FetchRequest, RequestFaultError, split_url
from haptic_trio.httpstore.transport import PORTS, Answer, Dialer, ask

MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PAUSE: Final = 0.2
"""Seconds before the first retry; doubles up to `_LONGEST_PAUSE`."""
_LONGEST_PAUSE: Final = 5.0
_CHARSETS: Final = {"": "utf-8-sig", "utf-8": "utf-8-sig", "us-ascii": "ascii", "iso-8859-1": "latin-1"}


class Fetcher:
    """Fetches under one policy. Keeps nothing but the trust in certificates."""

    def __init__(
        self,
        policy: FetchPolicy,
        *,
        dialer: Dialer | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy
        self._dialer = dialer or Dialer(policy.allowed_networks)
        self._jitter = jitter
        self._system_trust: ssl.SSLContext | None = None

    async def fetch(self, request: FetchRequest, known: Content | None) -> Content | None:
        """Return what *request* gives; None if the server says that it is still *known*.

        Takes `request.timeout` seconds at most. Raises `FetchError`.
        """
        newest: FetchError | None = None
        with trio.move_on_after(request.timeout):
            context = await self._trust(request)
            backoff = Backoff(base=_PAUSE, limit=_LONGEST_PAUSE, jitter=self._jitter)
            for attempt in range(request.retries + 1):
                if attempt:
                    await trio.sleep(backoff.next())
                try:
                    return await self._follow(request, known, context)
                except FetchError as exc:
                    newest = exc
                    if not exc.may_retry:
                        break
            assert newest is not None
            raise newest
        before = f"; before that: {newest.reason}" if newest is not None else ""
        raise FetchError(f"it took longer than {request.timeout:g} s{before}", may_retry=True)

    async def _trust(self, request: FetchRequest) -> ssl.SSLContext | None:
        if not request.url.startswith("https:"):
            return None
        if request.ca:
            try:
                return await trio.to_thread.run_sync(lambda: ssl.create_default_context(cadata=request.ca))
            except (ssl.SSLError, ValueError):
                raise FetchError("`ca` cannot be read as certificates") from None
        if self._system_trust is None:
            self._system_trust = await trio.to_thread.run_sync(ssl.create_default_context)
        return self._system_trust

    async def _follow(
        self, request: FetchRequest, known: Content | None, context: ssl.SSLContext | None
    ) -> Content | None:
        parts = split_url(request.url)
        headers = {"accept": "*/*", "user-agent": "haptic-trio", **dict(request.headers), **_validators(known)}
        only_public = False
        for _hop in range(MOST_REDIRECTS + 1):
            answer = await ask(
                parts,
                headers,
                dialer=self._dialer,
                context=context,
                max_bytes=self._policy.max_bytes,
                only_public=only_public,
            )
            if answer.status == 304 and known is not None:
                return None
            if answer.status == 200:
                content = content_of(answer)
                if not request.may_be_empty and not content.text.strip():
                    raise FetchError("the content is empty")
                return content
            if answer.status not in _REDIRECTS:
                raise FetchError(f"the server answered {answer.status}", may_retry=answer.may_retry)
            target = next_url(parts, answer.headers.get("location", ""), self._policy)
            if _origin(target) != _origin(parts):
                # Credentials and headers are for one origin only.
                sent = {name for name, _ in request.headers}
                headers = {name: value for name, value in headers.items() if name not in sent}
            parts = target
            only_public = only_public or answer.zone is Zone.PUBLIC
        raise FetchError(f"more than {MOST_REDIRECTS} redirects")


def content_of(answer: Answer) -> Content:
    """Return the text of *answer*; raises `FetchError` if it is none."""
    _, _, charset = answer.headers.get("content-type", "").lower().partition("charset=")
    codec = _CHARSETS.get(charset.partition(";")[0].strip(" \"'"))
    if codec is None:
        raise FetchError("the content's charset is neither UTF-8 nor ISO-8859-1")
    try:
        text = answer.body.decode(codec)
    except UnicodeDecodeError:
        raise FetchError("the content is not valid text in the charset that the server names, or in UTF-8") from None
    return Content.of(
        text,
        etag=_validator(answer.headers.get("etag", "")),
        last_modified=_validator(answer.headers.get("last-modified", "")),
    )


def next_url(current: SplitResult, location: str, policy: FetchPolicy) -> SplitResult:
    """Return where *location*, answered for *current*, leads; raises `FetchError` where it may not lead there."""
    try:
        target = split_url(urljoin(current.geturl(), location)) if location else None
    except (RequestFaultError, ValueError):
        target = None
    if target is None:
        raise FetchError("the server redirects to a URL that is not an HTTP URL")
    if target.scheme != current.scheme:
        raise FetchError(f"the server redirects from {current.scheme} to {target.scheme}")
    if not policy.allows(target.hostname or ""):
        raise FetchError("the server redirects to a host that is not allowed", "see `http.allowedHosts`")
    return target._replace(fragment="")


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme]


def _validators(known: Content | None) -> dict[str, str]:
    if known is None:
        return {}
    found = {"if-none-match": known.etag, "if-modified-since": known.last_modified}
    return {name: value for name, value in found.items() if value}


def _validator(value: str) -> str:
    """Return *value* if it can be sent back."""
    return value if len(value) <= 200 and value.isascii() and value.isprintable() else ""
