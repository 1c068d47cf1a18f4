"""Configuration in a Data Plane API: raw text under a version, and the reloads that follow a push.

The API does not keep a text as it was sent: it writes sections and lines in
an order of its own, under comments with a checksum and the version. What
comes back is therefore compared only with what came back before.
"""

import re
from typing import Final, Literal

import msgspec
import trio

from haptic_trio.dataplane.dataplaneapi.client import Answer, ApiClient, ApiStatusError, Params, quote_name
from haptic_trio.dataplane.endpoint import EndpointTimeoutError, EndpointUnreachableError
from haptic_trio.dataplane.local.ports import read_conflicts
from haptic_trio.errors import HapticError, Problem
from haptic_trio.haproxy.config.check_output import parse_check_output

PUSH_LIMIT: Final = 90.0
"""Seconds for a push: the API runs `haproxy -c` and, when told to, a reload before it answers."""
RELOAD_LIMIT: Final = 60.0
"""Seconds until a scheduled reload has to be over; the API's own delay is five by default."""
POLL_INTERVAL: Final = 0.25
"""Seconds between two looks at a reload that is under way."""
VERSION_ATTEMPTS: Final = 5
"""Pushes that may meet a version that is not the newest any more."""

ReloadMode = Literal["skip", "force", "schedule"]
"""What a push does to the process: nothing, a reload before the answer, or one when the API's delay is over."""

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
    """HAProxy did not load what it was told to; trying the same again is futile, unless it could not listen."""

    def __init__(self, response: str) -> None:
        self.unbound = read_conflicts(response)
        """Where it cannot listen, if that is the reason."""
        super().__init__(describe_reload(response))


class _Reload(msgspec.Struct):
    status: str = ""
    response: str = ""


class RawConfig:
    """The raw configuration of one API; errors are those of `ApiClient`."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def fetch(self) -> str:
        """Return the stored configuration without the API's own comments before it."""
        return strip_header((await self._api.get(_RAW)).text)

    async def fetch_version(self) -> int:
        """Return the version that the next push has to name."""
        return await self._api.get_as(int, "configuration/version")

    async def push(self, text: str, *, mode: ReloadMode) -> str:
        """Make *text* the configuration and return it as the API stores it.

        With a reload this returns when the reload has succeeded, and raises
        ReloadFailedError when it has not: the configuration is stored
        nevertheless. Raises ApiStatusError for one that HAProxy refuses.
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
                # Somebody else has changed it in between; what is rendered replaces that, whatever it was.
                if exc.status != 409 or not attempts:
                    raise

    async def explain(self, text: str, refusal: ApiStatusError) -> str:
        """Return HAProxy's own words on why it refuses *text*, lines counted as in *text*.

        The refusal of a push counts the lines of the API's rewriting, so the
        text is validated once more for itself.
        """
        params: Params = {"only_validate": "true", "version": await self.fetch_version()}
        try:
            body = text.encode(errors="surrogateescape")
            await self._api.send("POST", _RAW, params=params, text=body, limit=PUSH_LIMIT)
        except ApiStatusError as exc:
            if exc.status == 400:
                return describe_refusal(exc.words)
        return describe_refusal(refusal.words)

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
        raise EndpointTimeoutError(self._api.endpoint, f"reload {reload_id} was not over within {RELOAD_LIMIT:g} s")

    async def _fetch_reload(self, path: str) -> _Reload:
        try:
            return await self._api.get_as(_Reload, path)
        except ApiStatusError as exc:
            if exc.status == 404:
                # The API has been started anew: nobody knows any more.
                raise EndpointUnreachableError(self._api.endpoint, f"{path} is not known any more") from exc
            raise


def strip_header(text: str) -> str:
    """Return *text* without the comments that the API writes before a configuration, and blank lines there."""
    text = text.lstrip("\n")
    while (match := _HEADER.match(text)) is not None:
        text = text[match.end() :].lstrip("\n")
    return text


def read_refusal(words: str) -> tuple[Problem, ...]:
    """Read what the API says of a configuration that HAProxy refuses: a message each, with its line."""
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


def describe_refusal(words: str) -> str:
    """Return the problems in *words* in one line; the words themselves where they hold none."""
    problems = read_refusal(words)
    if not problems and (at := words.find("[ALERT]")) >= 0:
        # A reload at once that has failed: HAProxy's output stands behind the API's own words.
        problems = parse_check_output(words[at:]).errors
    return "; ".join(map(str, problems)) or words or "refused without a word"


def describe_reload(output: str) -> str:
    """Return what a failed reload has said."""
    return "; ".join(map(str, parse_check_output(output).errors)) or output.strip() or "reload failed without a word"
