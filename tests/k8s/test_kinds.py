import pytest

from haptic_trio.k8s.kinds import group_of, plural_of


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Ingress", "ingresses"),
        ("Service", "services"),
        ("EndpointSlice", "endpointslices"),
        ("Endpoints", "endpoints"),
        ("HTTPRoute", "httproutes"),
        ("Gateway", "gateways"),
        ("GatewayClass", "gatewayclasses"),
        ("IngressClass", "ingressclasses"),
        ("NetworkPolicy", "networkpolicies"),
        ("BackendTLSPolicy", "backendtlspolicies"),
        ("ReferenceGrant", "referencegrants"),
        ("Secret", "secrets"),
        ("Mesh", "meshes"),
    ],
)
def test_kinds_have_the_plural_that_the_api_uses(kind: str, plural: str) -> None:
    assert plural_of(kind) == plural


def test_the_core_group_is_empty() -> None:
    assert group_of("v1") == ""
    assert group_of("networking.k8s.io/v1") == "networking.k8s.io"
