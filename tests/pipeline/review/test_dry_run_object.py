"""A dry run fetches on-demand objects but nothing over HTTP, has a time limit, and leaves no change behind."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trustme

from haptic_trio.config.model import Config, StoreKind
from haptic_trio.httpstore.content import Content, Offer, Offers
from haptic_trio.httpstore.contents import Contents
from haptic_trio.httpstore.request import FetchRequest
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.heavy_changes import MOST_DEPENDENTS
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.review.dry_run_object import DryRunError, DryRunRender, render_dry_run
from haptic_trio.stages.components import make_stores
from haptic_trio.templating.incremental.outputs import Recall
from tests.pipeline.review.test_dry_run import Site as LibrarySite
from tests.support.components.on_demand import Cluster
from tests.support.components.pipeline import config_of, stores_of
from tests.support.kubernetes import ingress, path, rule, service, tls_secret

HEAD = "global\n    maxconn 10\n"
WATCHED = {
    "services": {"apiVersion": "v1", "resources": "services"},
    "configMaps": {"apiVersion": "v1", "resources": "configmaps", "store": "on-demand"},
}
LOOKING_UP = HEAD + (
    "{% each service in resources.services %}\n# {{ service.metadata.name }}"
    "{% for found in resources.configMaps.get(service.metadata.namespace, service.spec.settings) %}"
    " {{ found.spec.value }}{% endfor %}\n{% endeach %}\n"
)
FETCHING = HEAD + (
    "{% each service in resources.services %}\n"
    "# {{ service.metadata.name }} {{ http.fetch(service.spec.url) | length }}\n{% endeach %}\n"
)
ENDLESS = HEAD + (
    "{% each service in resources.services %}\n"
    "{% for a in range(service.spec.rounds) %}{% for b in range(1000) %}{% endfor %}{% endfor %}\n{% endeach %}\n"
)
SHARING = HEAD + (
    "{% each service in resources.services %}\n# {{ service.metadata.name }}"
    "{% for one in resources.services.get(service.metadata.namespace, 'shared') %} {{ one.spec.value }}{% endfor %}\n"
    "{% endeach %}\n"
)
ROOT = HEAD + "{% for service in resources.services.list() %}\n# {{ service.spec.needed }}\n{% endfor %}\n"


class Site:
    """A renderer that has rendered, and what it has."""

    def __init__(self, config: Config, stores: Stores, contents: Contents | None = None) -> None:
        self.stores = stores
        self.renderer = Renderer(config, contents)

    def put(self, *resources: Resource) -> None:
        for resource in resources:
            self.stores["services"].upsert(resource)

    async def text(self) -> str:
        with self.stores.frozen():
            return (await self.renderer.render(self.stores)).text

    async def dry_run(self, resource: Resource, limit: float = 60.0) -> DryRunRender:
        with self.stores.frozen(), trio.fail_after(60):
            replacements = {"services": {ref_of(resource): resource}}
            return await render_dry_run(self.renderer, self.stores, replacements, Recall(), limit=limit)


def text_after(dry_run: DryRunRender) -> str:
    assert dry_run.after is not None, dry_run.problems
    return dry_run.after.text


async def test_objects_on_demand_are_fetched_for_it_and_shown_to_it_alone() -> None:
    config = config_of(LOOKING_UP, watchedResources=WATCHED)
    assert config.watched_resources["configMaps"].store is StoreKind.ON_DEMAND
    cluster = Cluster()
    stores = make_stores(config, cluster)  # type: ignore[arg-type]
    settings = {"kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default", "resourceVersion": "1"}}
    cluster.objects[ref_of(settings)] = {**settings, "spec": {"value": "blue"}}
    demanding = stores["configMaps"]
    assert isinstance(demanding, OnDemandStore)
    demanding.upsert(demanding.reduce(cluster.objects[ref_of(settings)]))
    site = Site(config, stores)
    site.put(service("web", settings="none"))
    before = await site.text()

    dry_run = await site.dry_run(service("new", settings="one"))

    assert "# new blue" in text_after(dry_run)
    assert dry_run.before.text == before
    assert cluster.fetched == ["one"]
    assert await site.text() == before


class Counting(Contents):
    """Gives what has been fetched, and counts."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self._known: dict[str, Content] = {}

    def offers(self) -> Offers:
        """See `Contents.offers`."""
        return _Offers(dict(self._known))

    async def fetch_wanted(self, wanted: Mapping[str, FetchRequest]) -> None:
        """See `Contents.fetch_wanted`."""
        for request in wanted.values():
            self.fetched.append(request.url)
            self._known[request.url] = Content.of("four")


class _Offers:
    def __init__(self, known: Mapping[str, Content]) -> None:
        self._known = known

    def find(self, request: FetchRequest) -> Offer:
        return self._known.get(request.url)


async def test_nothing_is_fetched_over_http_for_an_object_that_may_never_be_and_it_is_once_it_is() -> None:
    config = config_of(FETCHING)
    contents = Counting()
    site = Site(config, stores_of(config), contents)
    site.put(service("web", url="https://one.test/"))
    before = await site.text()
    fresh = service("new", url="https://two.test/")

    dry_run = await site.dry_run(fresh)

    assert "# web 4" in before
    assert "# new 0" in text_after(dry_run)
    assert contents.fetched == ["https://one.test/"]
    assert await site.text() == before
    site.put(fresh)
    assert "# new 4" in await site.text()


async def test_rendering_that_takes_too_long_is_given_up_and_the_rest_goes_on() -> None:
    config = config_of(ENDLESS)
    site = Site(config, stores_of(config))
    site.put(service("web", rounds=0))
    before = await site.text()

    with pytest.raises(DryRunError, match="too long"):
        await site.dry_run(service("slow", rounds=90_000), limit=0.2)

    assert await site.text() == before


async def test_a_render_is_given_up_after_a_second_whatever_the_api_server_waits() -> None:
    config = config_of(ENDLESS)
    site = Site(config, stores_of(config))
    site.put(service("web", rounds=0))
    before = await site.text()

    # It would take seconds.
    with pytest.raises(DryRunError, match="too long"):
        await site.dry_run(service("slow", rounds=90_000), limit=60.0)

    assert await site.text() == before


async def test_an_object_on_which_very_many_fragments_depend_is_not_tried() -> None:
    config = config_of(SHARING)
    site = Site(config, stores_of(config))
    site.put(*(service(f"s{number}", namespace="many") for number in range(MOST_DEPENDENTS + 1)))
    site.put(*(service(f"s{number}", namespace="few") for number in range(MOST_DEPENDENTS - 1)))
    before = await site.text()

    with pytest.raises(DryRunError, match="more than 300 parts of the configuration depend on the object"):
        await site.dry_run(service("shared", namespace="many", value="new"))
    assert site.renderer.newest(site.stores) is not None
    assert "# s7 new" in text_after(await site.dry_run(service("shared", namespace="few", value="new")))

    assert await site.text() == before


async def test_rehearsal_that_is_cancelled_leaves_nothing() -> None:
    config = config_of(ENDLESS)
    site = Site(config, stores_of(config))
    site.put(service("web", rounds=0))
    before = await site.text()

    with trio.move_on_after(0.1) as scope:
        await site.dry_run(service("slow", rounds=90_000))

    assert scope.cancelled_caught
    assert site.renderer.newest(site.stores) is None
    site.put(service("more", rounds=0))
    site.stores["services"].delete(ref_of(service("more")))
    assert await site.text() == before


async def test_object_that_fails_every_render_is_reported_with_the_reason() -> None:
    config = config_of(ROOT)
    site = Site(config, stores_of(config))
    site.put(service("web", needed="yes"))
    before = await site.text()

    dry_run = await site.dry_run(service("new"))

    assert dry_run.after is None
    assert "needed" in str(dry_run.problems[0])
    assert site.renderer.newest(site.stores) is dry_run.before
    assert await site.text() == before


async def test_newest_render_is_none_of_stores_that_have_changed_since() -> None:
    config = config_of(ROOT)
    site = Site(config, stores_of(config))
    assert site.renderer.newest(site.stores) is None
    await site.text()
    assert site.renderer.newest(site.stores) is not None

    site.put(service("web", needed="yes"))

    assert site.renderer.newest(site.stores) is None


class TlsSite(LibrarySite):
    """A site that has each Ingress in all of its stores."""

    def stores_for(self, kind: str) -> tuple[str, ...]:
        if kind == "Ingress":
            return tuple(name for name in self.stores if name.startswith("ingresses"))
        return super().stores_for(kind)


@pytest.mark.haproxy
async def test_a_quarantined_object_is_found_in_its_good_version_after_a_review(
    haproxy_binary: Path, tmp_path: Path
) -> None:
    context = {"httpPort": 18080, "httpsPort": 18443}
    templating = {"libraries": ["base", "ssl", "ingress", "nginx-annotations"], "extraContext": context}
    site = TlsSite(haproxy_binary, tmp_path, templating=templating)
    issued = trustme.CA().issue_cert("*.test", key_type=trustme.KeyType.ECDSA)
    pair = tls_secret("pair", issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())
    site.stores["tlsSecrets"].upsert(pair)

    def web(name: str, **annotations: str) -> Resource:
        names = {f"nginx.ingress.kubernetes.io/{key}": text for key, text in annotations.items()}
        tls = [] if annotations else [{"hosts": [f"{name}.test"], "secretName": "pair"}]
        return ingress(name, rule(f"{name}.test", path("/", "web")), annotations=names, tls=tls)

    site.put(service("web"), web("other"), web("broken"))
    await site.run()
    # Its good version alone names the Secret.
    site.put(web("broken", **{"limit-rps": "nonsense"}))
    before = await site.run()
    assert [held.ref.name for held in site.quarantine.objects] == ["broken"]

    assert "broken.test" in before.generation.files["ssl/https.list"].content.decode()
    await site.try_out(web("other", **{"limit-rps": "5"}))
    after = await site.run()

    assert after.generation.text == before.generation.text
    assert after.generation.id == before.generation.id
