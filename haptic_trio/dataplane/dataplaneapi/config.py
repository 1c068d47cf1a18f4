"""Configuration in a Data Plane API: raw text under a version, and the reloads that follow a push.

The API rewrites a pushed text: it sorts sections and lines, and adds comments
with a checksum and the version. So a stored text is only compared with an
earlier stored text.
"""

import re
from typing import Final, Literal

import msgspec
import trio

from haptic_trio.dataplane.dataplaneapi.client import Answer, ApiClient, ApiStatusError, Params, quote_name
from haptic_trio.dataplane.endpoint import EndpointTimeoutError, EndpointUnreachableError
from haptic_trio.dataplane.local.ports import read_conflicts
from haptic_trio.dataplane.local.process_log import describe_load
from haptic_trio.errors import HapticError, Problem
from haptic_trio.haproxy.config.check_output import parse_check_output
from haptic_trio.haproxy.config.quoted import describe_problems

PUSH_LIMIT: Final = 90.0
"""Seconds for a push: before it answers, the API runs `haproxy -c` and, if requested, a reload."""
RELOAD_LIMIT: Final = 60.0
"""Seconds for a scheduled reload; the API's own delay is five by default."""
POLL_INTERVAL: Final = 0.25
"""Seconds between two queries about a running reload."""
VERSION_ATTEMPTS: Final = 5
"""Attempts of a push when the version changes meanwhile."""

ReloadMode = Literal["skip", "force", "schedule"]
"""Reload after a push: none, at once before the answer, or after the API's delay."""

_HEADER: Final = re.compile(r"# _(?:md5hash|version|cluster_version)=.*\n")
_RAW: Final = "configuration/raw"
_MODES: Final[dict[ReloadMode, dict[str, str]]] = {
    "skip": {"skip_reload": "true"},
    "force": {"force_reload": "true"},
    "schedule": {},
}
_MESSAGE: Final = re.compile(r'msg="((?:[^"\\]|\\.)*)"')
_SUMMARY: Final = re.compile(r"(?:config )?(?:Error\(s\) found in configuration file|Fatal errors found).*", re.DOTALL)
_PLACE: Final = re.compile(r"(?:config )?(?:: )?(?:parsing )?\[(?P<source>[^\]]*):(?P<line>\d+)\]\s*:?\s*")


class ReloadFailedError(HapticError):
    """HAProxy rejected the configuration in a reload; permanent, unless it could not bind an address."""

    def __init__(self, response: str) -> None:
        self.unbound = read_conflicts(response)
        """Addresses that HAProxy cannot bind, if that is the reason."""
        super().__init__(describe_load(response))


class _Reload(msgspec.Struct):
    status: str = ""
    response: str = ""


class RawConfig:
    """The raw configuration of one API; raises the errors of `ApiClient`."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def fetch(self) -> str:
        """Return the stored configuration without the API's comments before it."""
        return strip_header((await self._api.get(_RAW)).text)

    async def fetch_version(self) -> int:
        """Return the version for the next push."""
        return await self._api.get_as(int, "configuration/version")

    async def push(self, text: str, *, mode: ReloadMode) -> str:
        """Store *text* as the configuration and return it as rewritten by the API.

        With a reload, returns after it succeeded; raises ReloadFailedError if
        it failed (the configuration is stored nevertheless). Raises
        ApiStatusError if HAProxy rejects the configuration.
        """
        answer = await self._push_newest(text, mode)
        if answer.reload_id and mode != "skip":
            await self._follow(answer.reload_id)
        return strip_header(answer.text)

    async def _push_newest(self, text: str, mode: ReloadMode) -> Answer:
        body = text.encode(errors="surrogateescape")
        attempts = VERSION_ATTEMPTS
        while True:
            params: Params = {"version": await self.fetch_version(), **_MODES[mode]}
            try:
                return await self._api.send("POST", _RAW, params=params, text=body, limit=PUSH_LIMIT)
            except ApiStatusError as exc:
                attempts -= 1
                # Another client changed the configuration meanwhile; the rendered one replaces it.
                if exc.status != 409 or not attempts:
                    raise

    async def explain(self, text: str, rejection: ApiStatusError) -> str:
        """Return HAProxy's errors for *text*, with line numbers of *text*.

        A rejected push reports line numbers of the rewritten text, so *text*
        is validated again by itself.
        """
        params: Params = {"only_validate": "true", "version": await self.fetch_version()}
        try:
            body = text.encode(errors="surrogateescape")
            await self._api.send("POST", _RAW, params=params, text=body, limit=PUSH_LIMIT)
        except ApiStatusError as exc:
            if exc.status == 400:
                return describe_rejection(exc.words)
        return describe_rejection(rejection.words)

    async def _follow(self, reload_id: str) -> None:
        path = f"reloads/{quote_name(reload_id)}"
        with trio.move_on_after(RELOAD_LIMIT):
            while True:
                reload = await self._fetch_reload(path)
                if reload.status == "succeeded":
                    return
                if reload.status == "failed":
                    raise ReloadFailedError(reload.response)
                await trio.sleep(POLL_INTERVAL)
        raise EndpointTimeoutError(self._api.endpoint, f"reload {reload_id} did not finish within {RELOAD_LIMIT:g} s")

    async def _fetch_reload(self, path: str) -> _Reload:
        try:
            return await self._api.get_as(_Reload, path)
        except ApiStatusError as exc:
            if exc.status == 404:
                # The API was restarted and has lost the result.
                raise EndpointUnreachableError(self._api.endpoint, f"{path} is no longer known") from exc
            raise


def strip_header(text: str) -> str:
    """Return *text* without the comments and blank lines that the API writes before a configuration."""
    text = text.lstrip("\n")
    while (match := _HEADER.match(text)) is not None:
        text = text[match.end() :].lstrip("\n")
    return text


def read_rejection(words: str) -> tuple[Problem, ...]:
    """Parse the API's answer for a rejected configuration: each message with its line."""
    problems = []
    for quoted in _MESSAGE.findall(words):
        message = re.sub(r"\\(.)", r"\1", quoted)
        if _SUMMARY.fullmatch(message):
            continue
        place = _PLACE.match(message)
        line = int(place["line"]) if place is not None else 0
        text = message[place.end() :] if place is not None else message.removeprefix("config ")
        problems.append(Problem(message=text, source="haproxy.cfg", line=line))
    return tuple(problems)


def describe_rejection(words: str) -> str:
    """Return the problems in *words* in one line, without what they quote of the configuration."""
    problems = read_rejection(words)
    if not problems and (at := words.find("[ALERT]")) >= 0:
        # A failed forced reload: HAProxy's output follows the message of the API.
        problems = parse_check_output(words[at:]).errors
    # The API's own words may quote as well.
    return describe_problems(problems or [Problem(message=words or "rejected without a message")])
