"""Plural, group and scope of kinds, where no API server can be asked."""

from functools import lru_cache
from typing import Final

CLUSTER_SCOPED: Final = frozenset({
    "APIService",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "CSIDriver",
    "CSINode",
    "CustomResourceDefinition",
    "FlowSchema",
    "GatewayClass",
    "IngressClass",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "RuntimeClass",
    "StorageClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "VolumeAttachment",
})  # fmt: skip
"""Kinds whose objects are in no namespace; of every other kind we assume that they are."""

_OWN_PLURAL: Final = frozenset({"endpoints", "nodemetrics", "podmetrics"})


@lru_cache(maxsize=1024)
def plural_of(kind: str) -> str:
    """Return the lower-case plural by which the API names *kind*: `Ingress` is `ingresses`."""
    name = kind.lower()
    if name in _OWN_PLURAL:
        return name
    if name.endswith(("s", "x", "z", "ch", "sh")):
        return f"{name}es"
    if name.endswith("y") and name[-2:-1] not in set("aeiou"):
        return f"{name[:-1]}ies"
    return f"{name}s"


def group_of(api_version: str) -> str:
    """Return the group of *api_version*; empty for the core group."""
    return api_version.rpartition("/")[0]
