"""Interface between the pipeline and the HTTP content store."""

from collections.abc import Mapping

from haptic_trio.errors import Problem
from haptic_trio.httpstore.content import Content, Failure, Offer, Offers
from haptic_trio.httpstore.request import FetchRequest


class Contents:
    """Contents that are what they are: nothing is fetched, and nothing waits to be accepted."""

    def offers(self) -> Offers:
        """Return what templates get from now on."""
        raise NotImplementedError

    async def fetch_wanted(self, wanted: Mapping[str, FetchRequest]) -> None:
        """Have an answer for each of *wanted*, by key, within the longest of their timeouts."""
        raise NotImplementedError

    def release(self, used: frozenset[str]) -> None:
        """Forget all but what the keys *used* name."""

    def pending(self) -> Mapping[str, Content]:
        """Return what is offered without being accepted, by key."""
        return {}

    def withhold(self, suspects: Mapping[str, Content]) -> None:
        """Offer what was accepted before instead of *suspects*, or nothing."""

    def give_back(self, suspects: Mapping[str, Content]) -> None:
        """Offer *suspects* again."""

    def accept(self, contents: Mapping[str, Content]) -> None:
        """Take note that a configuration with *contents* is valid."""

    def reject(self, key: str, content: Content, problem: Problem) -> None:
        """Take note that *content* is to blame for *problem*; what was accepted before stays."""

    def announce(self) -> None:
        """Have the templates that use contents rendered again soon."""


class FixedContents(Contents):
    """Contents by URL, known beforehand: those of a test, or none at all."""

    def __init__(self, by_url: Mapping[str, Content | Failure], otherwise: Failure) -> None:
        self.by_url = by_url
        """May be replaced between two renders."""
        self._otherwise = otherwise

    def offers(self) -> Offers:
        """See `Contents.offers`."""
        return _Fixed(self.by_url, self._otherwise)


class _Fixed:
    def __init__(self, by_url: Mapping[str, Content | Failure], otherwise: Failure) -> None:
        self._by_url = by_url
        self._otherwise = otherwise

    def find(self, request: FetchRequest) -> Offer:
        return self._by_url.get(request.url, self._otherwise)


def no_contents() -> Contents:
    """Return what gives no content to anybody."""
    return FixedContents({}, Failure("nothing is fetched here"))
