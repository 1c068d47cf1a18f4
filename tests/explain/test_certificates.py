"""The list of certificates begins with the one that expires first."""

from datetime import UTC, datetime, timedelta

import pytest

from haptic_trio.explain.certificates import certificates_for, list_certificates
from haptic_trio.explain.site import Site
from tests.explain.sites import AUTHORITY, secret, site_of
from tests.support.kubernetes import ingress, path, rule, tls_secret

BEGIN = datetime(2040, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def site() -> Site:
    expiring = {"late": 90, "soon": 9}
    secrets = []
    for name, days in expiring.items():
        issued = AUTHORITY.issue_cert(f"{name}.test", not_after=BEGIN + timedelta(days=days))
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        secrets.append(tls_secret(name, chain, issued.private_key_pem.bytes()))
    rules = [rule(f"{name}.test", path("/", "web")) for name in expiring]
    tls = [{"secretName": name, "hosts": [f"{name}.test"]} for name in expiring]
    return site_of(ingress("i", *rules, tls=tls), *secrets, secret("unused", "unused.test"))


def test_certificates_have_names_objects_and_expiry_in_order(site: Site) -> None:
    served = [one for one in list_certificates(site) if one.objects]

    assert [(one.names, one.objects) for one in served] == [
        (("soon.test",), ("Secret default/soon",)),
        (("late.test",), ("Secret default/late",)),
    ]
    assert [one.expires for one in served] == [(BEGIN + timedelta(days=days)).timestamp() for days in (9, 90)]


def test_certificate_of_a_host_has_its_expiry(site: Site) -> None:
    (found,) = certificates_for(site, "soon.test")

    assert found.expires == (BEGIN + timedelta(days=9)).timestamp()
