"""`http` in templates: fetches as recorded lookups."""

from collections.abc import Mapping
from typing import Any

from haptic_trio.httpstore.content import Content, ContentMissingError, Failure, Offers
from haptic_trio.httpstore.contents import Contents
from haptic_trio.httpstore.request import FetchPolicy, FetchRequest, RequestFaultError, make_request
from haptic_trio.templating.incremental.bodies import has_read_secret
from haptic_trio.templating.incremental.questions import Question
from haptic_trio.templating.incremental.run import RenderRun, current_run
from haptic_trio.templating.views import ResourceView

SECRETS = "secrets"
"""The watched resource in which `auth: {secret: namespace/name}` is looked up."""


class Fetches:
    """Fetches that the templates of one run have asked for, and their contents."""

    name = "http.fetch"

    def __init__(self, contents: Contents, policy: FetchPolicy, resources: Mapping[str, ResourceView]) -> None:
        self._contents = contents
        self._policy = policy
        self._resources = resources
        self._offers: Offers | None = None
        self._requests: dict[str, FetchRequest] = {}
        self._wanted: dict[str, FetchRequest] = {}
        self._is_open = True

    @property
    def is_wanting(self) -> bool:
        """Whether there is something for `fetch_wanted`."""
        return bool(self._wanted)

    async def fetch_wanted(self) -> None:
        """Have everything fetched that the templates have asked for and did not get."""
        wanted, self._wanted = self._wanted, {}
        await self._contents.fetch_wanted(wanted)

    def take(self, run: RenderRun, offers: Offers) -> None:
        """Answer by *offers* from now on, and have rendered again in *run* what would get something else by that."""
        before, self._offers = self._offers, offers
        self._is_open = True
        self._wanted = {}
        for request in self._requests.values():
            if before is None or before.find(request) is not offers.find(request):
                run.touch(_question(request))

    def take_over(self, other: "Fetches") -> None:
        """Answer as *other* does."""
        self._offers = other._offers  # noqa: SLF001  the two are of one class

    def stop(self) -> None:
        """Fetch nothing until `take` is called again: renders use the contents that were fetched before."""
        self._is_open = False
        self._wanted = {}

    def used(self, run: RenderRun) -> frozenset[str]:
        """Return the keys of what the texts of *run* depend on, and forget the rest."""
        self._requests = {key: request for key, request in self._requests.items() if _question(request) in run.index}
        return frozenset(self._requests)

    def given(self, run: RenderRun) -> dict[str, Content]:
        """Return which contents the texts of *run* depend on, by key."""
        assert self._offers is not None
        found: dict[str, Content] = {}
        for key, request in self._requests.items():
            offer = self._offers.find(request)
            if isinstance(offer, Content) and _question(request) in run.index:
                found[key] = offer
        return found

    def fetch(self, url: Any, options: Mapping[str, Any]) -> str:
        """Return the content of *url*; see `HttpView.fetch`. Raises `ContentMissingError` if there is none."""
        run = current_run()
        request = make_request(url, options, self._policy, self._find_secret, is_secret=has_read_secret(run))
        request = self._requests.setdefault(request.key, request)
        run.ask(_question(request))
        assert self._offers is not None
        offer = self._offers.find(request)
        if isinstance(offer, Content):
            return offer.text
        if offer is None and self._is_open:
            self._wanted[request.key] = request
            raise ContentMissingError(f"{request.label} has not been fetched yet")
        if offer is None or not (request.critical or offer.is_fault):
            return ""
        raise missing(request, offer)

    def _find_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        if SECRETS not in self._resources:
            raise RequestFaultError(
                "Secrets are not watched", f"add `{SECRETS}` to `watchedResources`, indexed by namespace and name"
            )
        found: Mapping[str, Any] | None = self._resources[SECRETS].get_single(namespace, name)
        return found


def missing(request: FetchRequest, failure: Failure) -> ContentMissingError:
    """Return why *request* gives nothing."""
    return ContentMissingError(f"{request.label} is not to be had: {failure.reason}", failure.hint)


def _question(request: FetchRequest) -> Question:
    return "http", request.label, request.key


class HttpView:
    """`http` in templates; all that they can reach of it is `fetch`."""

    __slots__ = ("_fetches",)

    def __init__(self, fetches: Fetches) -> None:
        self._fetches = fetches

    def fetch(self, url: Any, options: Any = None, /, **more: Any) -> str:
        """Return the content of *url* as data: `http.fetch("https://…", interval="5m", critical=true)`.

        Options may also come as a mapping. Where there is no content the
        text is empty, unless it is critical: then the template or fragment fails.
        """
        if options is not None and not isinstance(options, Mapping):
            raise RequestFaultError("the options of http.fetch are not a mapping", "such as {'interval': '5m'}")
        return self._fetches.fetch(url, {**(options or {}), **more})
