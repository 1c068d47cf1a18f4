"""Paged lists of a kind."""

from collections.abc import Callable, Mapping
from typing import Final

import trio

from haptic_trio.errors import INVALID_JSON
from haptic_trio.k8s.api.connection import JSON, Connection
from haptic_trio.k8s.api.decode import decode_objects, decode_page
from haptic_trio.k8s.api.discovery import ServedKind
from haptic_trio.k8s.client import Selection
from haptic_trio.k8s.errors import ExpiredError, ServerFailedError
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.selectors import FieldSelector, parse_field_selector, parse_label_selector

PAGE: Final = 500
"""Objects in a page."""
# Decoded without a break: two milliseconds.
_SLICE: Final = 50

_EVERYWHERE: Final = frozenset({"metadata.name", "metadata.namespace"})
_SERVED_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "pods.v1": frozenset({"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase"}),
    "secrets.v1": frozenset({"type"}),
    "namespaces.v1": frozenset({"status.phase"}),
}
"""Fields that the API server can select by, for kinds that have more than name and namespace."""


class Query:
    """A selection, divided into what the server does and what is left to us.

    The server selects by few fields; all others are compared here, so that a
    field selector means the same as with a directory of manifests.
    """

    def __init__(self, selection: Selection) -> None:
        """Raises `SelectorError`."""
        parse_label_selector(selection.label_selector)
        fields = parse_field_selector(selection.field_selector).requirements
        able = _EVERYWHERE | _SERVED_FIELDS.get(str(selection.type), frozenset())
        served = [each for each in fields if each.expression in able]
        self._local = FieldSelector(tuple(each for each in fields if each.expression not in able))
        self._reduce = selection.reduce
        self.is_partial = selection.metadata_is_enough and all(
            each.expression.startswith("metadata.") for each in self._local.requirements
        )
        """Whether objects are asked for, and come, with their metadata alone."""
        terms = (f"{each.expression}{'=' if each.equal else '!='}{_escaped(each.value)}" for each in served)
        self.params: dict[str, str] = {}
        if selection.label_selector.strip():
            self.params["labelSelector"] = selection.label_selector
        if served:
            self.params["fieldSelector"] = ",".join(terms)

    def accepted(self, *, in_lists: bool) -> str:
        """Return the media types to ask for; a server that cannot leave out the rest answers with the last one."""
        if not self.is_partial:
            return JSON
        return f"{JSON};as=PartialObjectMetadata{'List' if in_lists else ''};g=meta.k8s.io;v=v1,{JSON}"

    def matches(self, resource: Resource) -> bool:
        """Whether *resource*, as the server has selected it, is wanted."""
        return self._local.matches(resource)

    def reduced(self, resource: Resource) -> Resource:
        """Return what is to be kept of *resource*."""
        return self._reduce(resource) if self._reduce is not None else resource


async def list_objects(
    connection: Connection, served: ServedKind, namespace: str, query: Query, note: Callable[[int], None]
) -> tuple[tuple[Resource, ...], str]:
    """Return all selected objects, and the version to watch from; raises `ApiError`.

    Decodes piece by piece, so that others get their turn, and calls *note*
    with the number of objects in each piece. A list that takes so long that
    its next page has expired is made again in one piece.
    """
    what = f"list {served.type}"
    objects: list[Resource] = []
    params = {**query.params, "limit": str(PAGE)}
    while True:
        try:
            body = await connection.request(
                "GET", served.path(namespace), what=what, params=params, accept=query.accepted(in_lists=True)
            )
        except ExpiredError:
            if "continue" not in params:
                raise
            objects.clear()
            params = dict(query.params)
            continue
        try:
            page = decode_page(body)
            if not page.metadata.resourceVersion:
                # Else any JSON object would be taken for an empty list, and every route be lost.
                raise ServerFailedError(what, "the answer is not a list: it has no resourceVersion")
            items = page.items or []
            for start in range(0, len(items), _SLICE):
                decoded = decode_objects(items[start : start + _SLICE], served)
                objects += (query.reduced(resource) for resource in decoded if query.matches(resource))
                note(len(decoded))
                await trio.lowlevel.checkpoint()
        except INVALID_JSON as error:
            raise ServerFailedError(what, f"the answer is not a list: {error}") from error
        if not page.metadata.continuation:
            return tuple(objects), page.metadata.resourceVersion
        params["continue"] = page.metadata.continuation


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
