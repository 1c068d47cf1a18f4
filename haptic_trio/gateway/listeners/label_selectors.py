"""Label selectors of Gateways and listeners, which choose Namespaces."""

from collections.abc import Mapping
from typing import Any

from haptic_trio.gateway.objects import dig, items_of, text_of


def selects(selector: Any, labels: Any) -> bool:
    """Whether a label selector, as objects have it, covers *labels*; an absent one covers nothing."""
    if not isinstance(selector, Mapping):
        return False
    labels = labels if isinstance(labels, Mapping) else {}
    wanted = dig(selector, "matchLabels")
    if isinstance(wanted, Mapping) and any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_fulfils(expression, labels) for expression in items_of(selector, "matchExpressions"))


def _fulfils(expression: Any, labels: Mapping[str, Any]) -> bool:
    key, values = text_of(expression, "key"), items_of(expression, "values")
    match text_of(expression, "operator"):
        case "In":
            return labels.get(key) in values if key in labels else False
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
