"""The list of certificates is paged."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from haptic_trio.console import certificates
from haptic_trio.console.certificates import Certificates
from haptic_trio.console.configuration import Configuration
from haptic_trio.explain.answers import ServedCertificate

SERVED = tuple(ServedCertificate(path=f"ssl/{number}.pem", expires=float(number)) for number in range(5))


class Renders:
    """Stands for the configuration of one render."""

    async def consult(self, ask: Any) -> Any:
        """Call *ask* for the render."""
        return ask(SimpleNamespace(pipeline=self), SimpleNamespace(serial=7), None)


async def test_a_page_has_those_that_expire_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_list", lambda *_: SERVED)
    page = await Certificates(cast("Configuration", Renders())).page(offset=1, limit=2)

    assert (page.serial, page.total, page.offset) == (7, 5, 1)
    assert page.certificates == SERVED[1:3]
