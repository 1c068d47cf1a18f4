"""Interface between the pipeline and the HTTP content store."""

from collections.abc import Mapping

from haptic_trio.errors import Problem
from haptic_trio.httpstore.content import Content, Failure, Offer, Offers
from haptic_trio.httpstore.request import FetchRequest


class Contents:
    """Store of fetched contents, as the pipeline uses it. This base class fetches nothing."""

    def offers(self) -> Offers:
        """Return the contents and failures that templates get from now on."""
        raise NotImplementedError

    async def fetch_wanted(self, wanted: Mapping[str, FetchRequest]) -> None:
        """Fetch *wanted*, by key; each has a content or a failure within the longest of their timeouts."""
        raise NotImplementedError

    def release(self, used: frozenset[str]) -> None:
        """Remove all contents but those of the keys *used*."""

    def pending(self) -> Mapping[str, Content]:
        """Return the pending contents, by key: offered to templates, and not accepted yet."""
        return {}

    def withhold(self, suspects: Mapping[str, Content]) -> None:
        """Offer the last accepted contents instead of *suspects*, or a failure if there are none."""

    def give_back(self, suspects: Mapping[str, Content]) -> None:
        """Offer *suspects* again."""

    def accept(self, contents: Mapping[str, Content]) -> None:
        """Mark *contents* as accepted: a configuration with them is valid."""

    def reject(self, key: str, content: Content, problem: Problem) -> None:
        """Mark *content* as rejected because of *problem*; the last accepted content stays."""

    def announce(self) -> None:
        """Trigger a render of the templates that use contents."""


class FixedContents(Contents):
    """Fixed contents by URL, such as those of a validation test."""

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
