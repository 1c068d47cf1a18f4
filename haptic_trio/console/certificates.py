"""List of certificates by expiry for the console: computed once for each render, paged on request."""

from haptic_trio.console.configuration import Configuration, Source, site_for
from haptic_trio.console.per_render import PerRender
from haptic_trio.console.protocol import CertificatePage
from haptic_trio.explain.answers import ServedCertificate
from haptic_trio.explain.certificates import list_certificates
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.incremental.provenance import Provenance

MOST_CERTIFICATES = 500
"""Maximum number of certificates of a page."""


class Certificates:
    """Answers about certificates."""

    def __init__(self, configuration: Configuration) -> None:
        self._list = PerRender(configuration, _list)

    def forget(self) -> None:
        """Drop the list; called when the last client disconnects."""
        self._list.forget()

    async def page(self, *, offset: int = 0, limit: int = 200, patient: bool = False) -> CertificatePage:
        """Return *limit* certificates from the 0-based *offset* on, those that expire first at the beginning.

        For *patient* and `NotNowError`, see `PerRender.get`.
        """
        newest = await self._list.get(patient=patient)
        first, count = max(0, offset), max(1, min(limit, MOST_CERTIFICATES))
        return CertificatePage(
            serial=newest.serial,
            total=len(newest.value),
            offset=offset,
            certificates=newest.value[first : first + count],
        )


def _list(source: Source, rendered: Rendered, provenance: Provenance) -> tuple[ServedCertificate, ...]:
    return list_certificates(site_for(source, rendered, provenance))
