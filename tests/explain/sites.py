"""Rendered sites of the shipped libraries, to ask about."""

from collections.abc import Iterable
from typing import Any

import trustme

from haptic_trio.cli.inputs import oneshot
from haptic_trio.config.model import Config, Snippet
from haptic_trio.explain.site import Site
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Rendered, Renderer
from tests.support.components.rendering import KINDS, library_config
from tests.support.kubernetes import tls_secret

AUTHORITY = trustme.CA()


def secret(name: str, *hosts: str, age: int = 1, namespace: str = "default") -> Resource:
    """Return a TLS Secret for *hosts*."""
    issued = AUTHORITY.issue_cert(*hosts)
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    return tls_secret(name, chain, issued.private_key_pem.bytes(), age=age, namespace=namespace)


def site_of_render(config: Config, stores: Stores, renderer: Renderer, rendered: Rendered) -> Site:
    """Return what can be asked of what *renderer* has just *rendered*."""
    return oneshot.site_of(config, stores, renderer, rendered, parse_config(rendered.config.pieces))


class Workshop:
    """A configuration, objects that a test may change, and the newest render of them."""

    def __init__(
        self,
        objects: Iterable[Resource],
        *,
        snippets: dict[str, str] | None = None,
        libraries: tuple[str, ...] = ("base", "ssl", "ingress"),
        **context: Any,
    ) -> None:
        user = Config(template_snippets={name: Snippet(template=text) for name, text in (snippets or {}).items()})
        self.config = library_config(*libraries, user=user, **context)
        self.stores = Stores(Store(name, watched.index_by) for name, watched in self.config.watched_resources.items())
        self.renderer = Renderer(self.config)
        self.quarantine = Quarantine()
        for item in objects:
            self.put(item)

    def put(self, resource: Resource) -> None:
        """Create or change an object."""
        for store in self._stores_of(resource):
            store.upsert(resource)

    def remove(self, resource: Resource) -> None:
        """Delete an object."""
        for store in self._stores_of(resource):
            store.replace([kept for kept in store.list() if kept is not resource and kept != resource])

    def _stores_of(self, resource: Resource) -> list[Store]:
        return [
            self.stores[name]
            for name, watched in self.config.watched_resources.items()
            if KINDS[watched.resources] == resource["kind"]
            and (watched.field_selector != "type=kubernetes.io/tls" or resource.get("type") == "kubernetes.io/tls")
        ]

    def render(self) -> Rendered:
        """Render what the stores hold, and take it as good."""
        rendered = self.renderer.render_here(self.stores, self.quarantine.recall())
        self.quarantine.take(rendered.serial, rendered.changed, is_new=rendered.is_new)
        self.quarantine.accept(rendered.serial, rendered.rejections)
        return rendered

    def site(self) -> Site:
        """Render, and return what can be asked."""
        return site_of_render(self.config, self.stores, self.renderer, self.render())


def site_of(*objects: Resource, snippets: dict[str, str] | None = None, **context: Any) -> Site:
    """Return a rendered site of *objects*."""
    return Workshop(objects, snippets=snippets, **context).site()


def number_of(site: Site, path: str, text: str) -> int:
    """Return the number of the only line of *path* that reads *text*."""
    (found,) = [number for number, line in enumerate(site.lines_of(path), 1) if line.strip() == text]
    return found
