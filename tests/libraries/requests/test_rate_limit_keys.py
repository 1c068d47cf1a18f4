"""Rate limits by annotations of haptic-trio: what counts as one client."""

from collections.abc import Mapping

import pytest

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.requests.tokens import (
    CLAIMS,
    GIVEN,
    HOST,
    KEYS,
    LIBRARIES,
    RSA_KEY,
    by_rsa,
    protected,
    secret,
    token,
)
from tests.support.kubernetes import endpoint, endpoint_slice, service
from tests.support.traffic.servers import ask, serving

CLIENTS = secret("clients", a=b"0123456789abcdef", b=b"fedcba9876543210")
LIMIT = {"rate-limit": "2", "rate-limit-period": "1h"}


def bearer(subject: str | None) -> dict[str, str]:
    claims = {name: value for name, value in {**CLAIMS, "sub": subject}.items() if value is not None}
    return {"Authorization": f"Bearer {token('RS256', by_rsa(RSA_KEY), claims)}"}


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("annotations", "one", "other"),
    [
        ({"rate-limit-key": "header X-Tenant"}, {"X-Tenant": "a" * 300 + "1"}, {"X-Tenant": "a" * 300 + "2"}),
        # A request without its key counts for its address, not for a key of the same text.
        ({"rate-limit-key": "header X-Tenant"}, {}, {"X-Tenant": "127.0.0.1"}),
        ({**GIVEN, "rate-limit-key": "claim sub"}, bearer("joe"), bearer("ann")),
        ({**GIVEN, "rate-limit-key": "claim sub"}, bearer(None), bearer("ann")),
        (
            {"api-key-secret": "clients", "rate-limit-key": "api-key-client"},
            {"X-API-Key": "0123456789abcdef"},
            {"X-API-Key": "fedcba9876543210"},
        ),
        # By default, headers make no difference.
        ({}, {"X-Tenant": "a"}, None),
    ],
    ids=["header", "no header", "claim", "no claim", "client", "address"],
)
def test_each_key_has_the_whole_limit(
    cluster: Cluster, annotations: Mapping[str, str], one: dict[str, str], other: dict[str, str] | None
) -> None:
    with serving("web") as running:
        objects: list[Resource] = [KEYS, CLIENTS, service("web")]
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"])
        # The counter of another library is another one.
        others = {"nginx.ingress.kubernetes.io/limit-rps": "100"}
        ingress = protected({**LIMIT, **annotations}, **others)
        rendered = cluster.serve(ingress, slices, *objects, libraries=LIBRARIES)
        assert rendered.rejections == ()

        assert [ask(cluster.http_port, HOST, headers=one).status for _ in range(3)] == [200, 200, 429]
        assert ask(cluster.http_port, HOST, headers=other or {}).status == (429 if other is None else 200)


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"rate-limit-period": "1m"}, "rate-limit-period requires rate-limit"),
        ({**LIMIT, "rate-limit": "0"}, "rate-limit"),
        ({**LIMIT, "rate-limit-period": "soon"}, "not a duration"),
        ({**LIMIT, "rate-limit-period": "0s"}, "the time over which a rate is counted is too short"),
        ({**LIMIT, "rate-limit-key": ""}, "must be address, header NAME, claim NAME or api-key-client"),
        ({**LIMIT, "rate-limit-key": "header"}, "must be address, header NAME, claim NAME or api-key-client"),
        ({**LIMIT, "rate-limit-key": "header X) -m found }"}, "must be address, header NAME"),
        ({**LIMIT, "rate-limit-key": "header X)"}, "header"),
        ({**LIMIT, "rate-limit-key": "claim sub"}, "a claim requires jwt-secret"),
        ({**LIMIT, **GIVEN, "rate-limit-key": "claim a'b"}, "not the name of a claim"),
        ({**LIMIT, "rate-limit-key": "api-key-client"}, "requires api-key-secret"),
        ({**LIMIT, "api-key-secret": "clients", "rate-limit-key": "header x-api-key"}, "use api-key-client"),
    ],
)
def test_values_that_cannot_be_used_reject_the_ingress(
    cluster: Cluster, annotations: dict[str, str], problem: str
) -> None:
    rendered = cluster.render(protected(annotations), service("web"), KEYS, CLIENTS, libraries=LIBRARIES)

    assert problem in rendered.rejected["Ingress default/web"]
