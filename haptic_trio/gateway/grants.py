"""Check of references into another namespace against ReferenceGrants."""

from haptic_trio.gateway.objects import GROUP, Lookups, bare_in, items_of, text_of


def is_granted(
    lookups: Lookups, *, kind: str, namespace: str, to_namespace: str, to_kind: str, to_name: str, to_group: str = ""
) -> bool:
    """Whether a Gateway API object of *kind* in *namespace* may refer to the object *to_name* in *to_namespace*."""
    if namespace == to_namespace:
        return True
    for grant in bare_in(lookups, "referenceGrants", to_namespace):
        is_from = any(
            text_of(origin, "group") == GROUP
            and text_of(origin, "kind") == kind
            and text_of(origin, "namespace") == namespace
            for origin in items_of(grant, "spec", "from")
        )
        if is_from and any(
            text_of(target, "group") == to_group
            and text_of(target, "kind") == to_kind
            and text_of(target, "name") in ("", to_name)
            for target in items_of(grant, "spec", "to")
        ):
            return True
    return False
