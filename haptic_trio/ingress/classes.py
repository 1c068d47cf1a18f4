"""Selection of the Ingresses that this controller serves, by class and controller."""

from collections.abc import Sequence
from typing import Final

import msgspec

from haptic_trio.gateway.objects import Lookups, Resource, derived, dig, text_of

_DEFAULT: Final = "ingressclass.kubernetes.io/is-default-class"


class OwnClasses(msgspec.Struct, frozen=True):
    """The classes of the Ingresses that are served."""

    name: str
    controller: str
    without: bool
    """Whether Ingresses without a class are served as well."""

    def handles(self, name: str, lookups: Lookups) -> bool:
        """Whether Ingresses of the class *name*, empty for none, are served."""
        if name:
            return name == self.name or self.controller in derived(lookups, "ingressClasses", _controllers, name)
        return self.without or derived(lookups, "ingressClasses", _IsDefault(self.name, self.controller))


class _IsDefault(msgspec.Struct, frozen=True):
    """Lookup aspect: whether an IngressClass of this controller is the default class."""

    name: str
    controller: str

    def __call__(self, found: Sequence[Resource]) -> bool:
        return any(
            text_of(one, "metadata", "annotations", _DEFAULT) == "true"
            and (text_of(one, "metadata", "name") == self.name or text_of(one, "spec", "controller") == self.controller)
            for one in found
        )


def _controllers(found: Sequence[Resource]) -> frozenset[str]:
    return frozenset(text_of(one, "spec", "controller") for one in found)


def class_of(ingress: Resource) -> str:
    """Return the class that *ingress* names; the field counts before the annotation."""
    return text_of(ingress, "spec", "ingressClassName") or text_of(
        dig(ingress, "metadata"), "annotations", "kubernetes.io/ingress.class"
    )
