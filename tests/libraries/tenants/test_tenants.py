"""An object cannot take a host or a path from an older object of another namespace."""

from collections.abc import Iterator
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.render import Renderer
from tests.libraries.conftest import Cluster
from tests.libraries.tenants.tenants import (
    ALL,
    CLIENTS,
    EVIL,
    HI,
    HOST,
    NGINX,
    SHOP,
    SHOP_TLS,
    WILDCARD,
    evil,
    secret,
    secured,
    victim,
)
from tests.libraries.tls.test_client_certificates import authority_secret
from tests.support.components.rendering import KINDS, library_config, render
from tests.support.kubernetes import (
    ingress,
    path,
    rule,
    service,
    service_backend,
)
from tests.support.traffic.servers import ask


def routes(*objects: Resource, **context: Any) -> dict[str, str]:
    """Return what leads to which namespace, by its key."""
    files = render(objects, libraries=ALL, **context).files
    found: dict[str, str] = {}
    for name in ("exact", "prefix"):
        for line in files[f"maps/path-{name}.map"].splitlines():
            key, backend = line.split()
            found.setdefault(f"{name} {key}", backend.split("_")[0])
    return found


@pytest.mark.parametrize("theirs", ["Exact", "Prefix", "ImplementationSpecific"])
@pytest.mark.parametrize("own", ["Exact", "Prefix", "ImplementationSpecific"])
@pytest.mark.parametrize("text", ["/login", "/login/", "/%6cogin", "/%6C%6fgin/"])
def test_a_path_stays_with_the_older_namespace_whatever_the_types(own: str, theirs: str, text: str) -> None:
    found = routes(
        victim(rule(HOST, path("/login", "web", kind=own))),
        evil(rule(HOST, path(text, "web", kind=theirs), path("/api", "web"))),
    )

    assert {key: who for key, who in found.items() if "login" in key or "og" in key.lower()} == {
        f"exact {HOST}|/login" if own == "Exact" else f"prefix {HOST}|/login/": "victim"
    }
    assert found[f"prefix {HOST}|/api/"] == "attacker"


def test_within_a_namespace_exact_takes_precedence_over_prefix() -> None:
    found = routes(
        victim(rule(HOST, path("/login", "web"))),
        victim(rule(HOST, path("/login", "web", kind="Exact")), name="younger", age=2),
        evil(rule(HOST, path("/login", "web", kind="Exact"))),
    )

    assert found == {f"prefix {HOST}|/login/": "victim", f"exact {HOST}|/login": "victim"}


@pytest.mark.parametrize(
    ("attack", "key"),
    [
        pytest.param(evil(rule(HOST, path("/", "web", kind="Exact"))), HOST, id="exact root"),
        pytest.param(evil(rule(HOST.upper(), path("/", "web"))), HOST, id="other case"),
        pytest.param(
            evil(rule(HOST, path("/(.*)", "web")), annotations={NGINX + "use-regex": "true"}), HOST, id="regex"
        ),
        pytest.param(
            evil(rule("a.example.org", path("/", "web")), annotations={NGINX + "server-alias": HOST}), HOST, id="alias"
        ),
        pytest.param(
            evil(rule("a.example.org", path("/", "web", kind="Exact")), annotations={HI + "server-alias": HOST}),
            HOST,
            id="exact alias",
        ),
        pytest.param(
            evil(rule("a.example.org", path("/", "web")), annotations={HI + "redirect-from": f"b.org,{HOST}"}),
            HOST,
            id="redirect",
        ),
        pytest.param(
            evil(rule("www.shop.example.com", path("/", "web")), annotations={NGINX + "from-to-www-redirect": "true"}),
            HOST,
            id="www",
        ),
        pytest.param(evil(rule(HOST), defaultBackend=service_backend("web")), HOST, id="default backend"),
    ],
)
@pytest.mark.parametrize("older", ["rule", "default"])
def test_the_root_of_a_host_stays_with_the_older_namespace(attack: Resource, key: str, older: str) -> None:
    own = rule(HOST, path("/", "web")) if older == "rule" else rule(HOST, path("/x", "web"))
    more: dict[str, Any] = {} if older == "rule" else {"defaultBackend": service_backend("web")}
    found = routes(victim(own, **more), attack)

    assert {who for name, who in found.items() if name.split()[1].startswith(f"{key}|")} == {"victim"}


@pytest.mark.parametrize(
    ("annotation", "value", "alias"),
    [
        ("server-alias", "a.example.org, old.example.com", "old.example.com"),
        ("from-to-www-redirect", "true", f"www.{HOST}"),
    ],
)
def test_an_alias_counts_as_a_host_of_its_ingress(annotation: str, value: str, alias: str) -> None:
    owner = victim(rule(HOST, path("/", "web")), annotations={NGINX + annotation: value})
    found = routes(owner, evil(rule(alias, path("/", "web", kind="Exact"), path("/api", "web"))))

    assert {key: who for key, who in found.items() if f" {alias}|" in key} == {
        f"prefix {alias}|{'/' if annotation == 'server-alias' else ''}": "victim",
        f"prefix {alias}|/api/": "attacker",
    }


def test_rules_for_every_host_belong_to_the_oldest_ingress_and_can_be_limited_to_namespaces() -> None:
    default = victim(defaultBackend=service_backend("web"))
    other = evil(rule(None, path("/", "web"), path("/", "web", kind="Exact"), path("/api", "web")))

    assert routes(default, other) == {"prefix *|": "victim", "prefix *|/api/": "attacker"}
    assert routes(default, other, catchAllNamespaces=["victim"]) == {"prefix *|": "victim"}
    assert routes(other, default, catchAllNamespaces=["infra"]) == {}


@pytest.mark.parametrize("ownership", ["shared", "namespace"])
def test_older_rules_for_every_host_that_are_not_allowed_take_none_from_those_that_are(ownership: str) -> None:
    allowed = victim(rule(None, path("/", "web"), path("/api", "web")), age=25)
    site = Site(hostOwnership=ownership, catchAllNamespaces=["victim"])
    for one in (allowed, evil(rule(None, path("/", "web"), path("/api", "web"), path("/x", "web")), age=1)):
        site.put(one)
        assert site.render()["path-prefix.map"].split() == ["*|/", "victim_web_80", "*|/api/", "victim_web_80"]
    assert site.reasons == {("Ingress attacker/evil", "HostTaken")}


@pytest.mark.parametrize("annotation", [NGINX + "server-alias", HI + "server-alias", HI + "redirect-from"])
def test_a_default_backend_stays_with_the_older_ingress_whatever_hosts_its_annotations_name(annotation: str) -> None:
    default = victim(defaultBackend=service_backend("web"), annotations={annotation: "a.example.com"})

    found = routes(default, evil(rule(None, path("/", "web", kind="Exact"))))
    assert found["prefix *|"] == "victim"
    assert "exact *|/" not in found
    other = evil(defaultBackend=service_backend("web"))
    assert routes(default, other, hostOwnership="namespace")["prefix *|"] == "victim"


@pytest.mark.parametrize("older", [1, 25])
def test_a_host_can_belong_to_one_namespace_as_a_whole(older: int) -> None:
    own = victim(rule(HOST, path("/shop", "web")), rule("b.example.com", path("/", "web")), age=older)
    other = evil(rule(HOST, path("/api", "web")), rule("c.example.com", path("/", "web")))
    found = routes(own, other, hostOwnership="namespace")

    taken = {f"prefix {HOST}|/shop/": "victim"} if older == 1 else {f"prefix {HOST}|/api/": "attacker"}
    assert found.pop(f"prefix {HOST}|") == "no-path"
    assert found == {**taken, "prefix b.example.com|/": "victim", "prefix c.example.com|/": "attacker"}


def test_an_ingress_redirects_plain_http_only_for_its_own_hosts() -> None:
    files = render([victim(rule(HOST, path("/", "web"))), evil(tls=secured(HOST, "e.org"))], sslRedirect=True).files

    assert files["maps/tls-host.map"].split() == ["e.org", "yes"]


@pytest.mark.haproxy
@pytest.mark.parametrize("older", ["victim", "attacker"])
def test_a_wildcard_redirects_no_host_of_an_older_ingress(cluster: Cluster, older: str) -> None:
    cluster.serve(
        victim(rule(HOST, path("/", "web")), age=30 if older == "attacker" else 1),
        evil(rule(WILDCARD, path("/", "web")), tls=secured(WILDCARD)),
        libraries=ALL,
        sslRedirect=True,
    )

    # Without a Service, what is not redirected is answered with 503.
    assert ask(cluster.http_port, HOST).status == (503 if older == "victim" else 308)
    assert ask(cluster.http_port, "other.example.com").status == 308


@pytest.mark.haproxy
def test_redirected_hosts_are_looked_up_in_a_list(cluster: Cluster) -> None:
    def shop(count: int) -> Resource:
        old = ",".join(f"old{number}.example.com" for number in range(count))
        return victim(rule(HOST, path("/", "web"), path("/api", "api")), annotations={HI + "redirect-from": old})

    services = [service(name, namespace="victim") for name in ("web", "api")]
    few = cluster.render(shop(2), *services, libraries=ALL)
    many = cluster.serve(shop(2000), *services, libraries=ALL)

    assert len(many.text.splitlines()) == len(few.text.splitlines())
    answer = ask(cluster.http_port, "OLD1999.example.com", "/x?y")
    assert (answer.status, answer.headers["location"]) == (302, f"http://{HOST}/x?y")
    assert ask(cluster.http_port, HOST).status == 503


def test_passthrough_does_not_take_the_host_of_another_namespace() -> None:
    passing = evil(rule(HOST, path("/", "web")), annotations={NGINX + "ssl-passthrough": "true"})
    for owner in (
        victim(rule(HOST, path("/x", "web"))),
        victim(rule("a.example.com", path("/", "web")), tls=secured(HOST)),
        victim(rule("a.example.com", path("/", "web")), annotations={NGINX + "server-alias": HOST}),
    ):
        assert render([owner, passing], libraries=ALL).files["maps/ingress-passthrough.map"].strip() == ""
    assert HOST in render([passing], libraries=ALL).files["maps/ingress-passthrough.map"]


class Site:
    """Objects that come and go, rendered again each time, and compared with what rendering everything again gives."""

    def __init__(self, *objects: Resource, **context: Any) -> None:
        self.config = library_config(*ALL, **context)
        self.stores = Stores(Store(name, watched.index_by) for name, watched in self.config.watched_resources.items())
        self.renderer = Renderer(self.config)
        for one in objects:
            self.put(one)

    def _stores_of(self, resource: Resource) -> Iterator[Store]:
        for name, watched in self.config.watched_resources.items():
            wanted = watched.field_selector.removeprefix("type=")
            if KINDS[watched.resources] == resource["kind"] and wanted in ("", resource.get("type")):
                yield self.stores[name]

    def put(self, resource: Resource) -> None:
        for store in self._stores_of(resource):
            store.upsert(resource)

    def remove(self, resource: Resource) -> None:
        for store in self._stores_of(resource):
            store.delete(ref_of(resource))

    def render(self) -> dict[str, str]:
        found, whole = self.renderer.render_here(self.stores), Renderer(self.config).render_here(self.stores)
        assert {path: text.text for path, text in found.texts.items()} == {
            path: text.text for path, text in whole.texts.items()
        }
        assert found.warnings == whole.warnings
        self.reasons = {(str(one.subject), one.reason) for one in found.warnings} - {
            (str(one.subject), one.reason) for one in found.warnings if one.reason == "ServiceNotFound"
        }
        return {path.rpartition("/")[2]: text.text for path, text in found.texts.items()}


def test_paths_move_to_the_younger_ingress_when_the_older_one_is_deleted_and_back() -> None:
    rival = evil(rule(HOST, path("/", "web", kind="Exact")), tls=secured(HOST))
    site = Site(SHOP, rival, SHOP_TLS, secret("attacker", "tls", HOST, by=EVIL))
    both = {("Ingress victim/shop", reason) for reason in ("HostShared", "PathWanted", "CertificateWanted")} | {
        ("Ingress attacker/evil", reason) for reason in ("HostShared", "PathTaken", "CertificateTaken")
    }
    for _ in range(2):
        files = site.render()
        assert files["https.list"].split() == ["ssl/victim_tls.pem", HOST]
        assert files["path-exact.map"].strip() == ""
        assert site.reasons == both

        site.remove(SHOP)
        files = site.render()
        assert files["https.list"].split() == ["ssl/attacker_tls.pem", HOST]
        assert files["path-exact.map"].split() == [f"{HOST}|/", "attacker_web_80"]
        assert site.reasons == set()
        site.put(SHOP)


def test_a_new_host_below_a_wildcard_is_excluded_from_its_certificate() -> None:
    wide = evil(rule(WILDCARD, path("/", "web")), tls=secured(WILDCARD))
    site = Site(wide, secret("attacker", "tls", WILDCARD, by=EVIL))
    assert site.render()["https.list"].split() == ["ssl/attacker_tls.pem", WILDCARD]

    site.put(SHOP)
    assert site.render()["https.list"].split() == ["ssl/attacker_tls.pem", WILDCARD, f"!{HOST}"]
    site.remove(SHOP)
    assert site.render()["https.list"].split() == ["ssl/attacker_tls.pem", WILDCARD]


def crowd(count: int, namespace: str, **more: Any) -> Resource:
    """Return an old Ingress of *namespace* with *count* hosts below the wildcard."""
    hosts = [rule(f"h{number}.{WILDCARD[2:]}", path("/", "web")) for number in range(count)]
    aliases = ",".join(f"{namespace}{number}.{WILDCARD[2:]}" for number in range(count))
    return ingress("crowd", hosts[0], namespace=namespace, annotations={NGINX + "server-alias": aliases}, **more)


def test_very_many_hosts_of_a_namespace_take_the_certificate_of_no_wildcard_from_another() -> None:
    wide = victim(rule(WILDCARD, path("/", "web")), tls=secured(WILDCARD), age=21)
    small = ingress("small", rule("small.example.com", path("/", "web")), namespace="small", age=20)
    site = Site(wide, secret("victim", "tls", WILDCARD, by=EVIL), crowd(600, "attacker", age=1), small)

    file, *names = site.render()["https.list"].split()
    assert (file, names[0]) == ("ssl/victim_tls.pem", WILDCARD)
    assert "!small.example.com" in names
    assert 300 < len(names) <= 501
    reasons = {one for one in site.reasons if one[1] != "HostShared"}
    assert reasons == {("Ingress attacker/crowd", "HostsNotExcluded")}


def test_a_wildcard_that_cannot_exclude_a_share_of_each_namespace_has_no_certificate_and_a_warning() -> None:
    wide = evil(rule(WILDCARD, path("/", "web")), tls=secured(WILDCARD))
    crowds = [crowd(60, f"crowd{number}", age=1) for number in range(11)]
    site = Site(wide, secret("attacker", "tls", WILDCARD, by=EVIL), *crowds)

    assert site.render()["https.list"].split() == []
    assert ("Ingress attacker/evil", "CertificateNotServed") in site.reasons


def verifying(age: int, below_age: int) -> tuple[Site, list[str]]:
    """Return a wildcard of the attacker that verifies clients, 9 hosts of the victim below it, and 111 more hosts."""

    def asking(make: Any, name: str, *hosts: str, age: int) -> Resource:
        rules = [rule(host, path("/", "web")) for host in hosts]
        annotations = {NGINX + "auth-tls-secret": "clients"}
        found: Resource = make(*rules, tls=secured(*hosts), annotations=annotations, name=name, age=age)
        return found

    below = [f"{'h' * 58}{number}.example.com" for number in range(120)]
    site = Site(asking(evil, "wide", WILDCARD, age=age), asking(victim, "few", *below[:9], age=below_age))
    for namespace in ("attacker", "victim"):
        site.put(secret(namespace, "tls", WILDCARD, by=EVIL))
        site.put({**authority_secret("clients", CLIENTS), "metadata": {"namespace": namespace, "name": "clients"}})
    assert len(verifying_lines(site)) == 1
    site.put(asking(victim, "many", *below[9:], age=below_age + 1))
    return site, below


def verifying_lines(site: Site) -> list[list[str]]:
    """Return the words of the lines for the wildcard that ask clients for certificates."""
    lines = [line.split() for line in site.render()["https.list"].splitlines()]
    return [line for line in lines if WILDCARD in line and "verify" in line]


def test_a_wildcard_that_cannot_exclude_all_older_hosts_that_verify_clients_asks_for_no_certificates() -> None:
    site, _ = verifying(age=9, below_age=1)

    assert verifying_lines(site) == []
    assert {one for one in site.reasons if one[1] == "ClientsNotAsked"} == {
        ("Ingress attacker/wide", "ClientsNotAsked")
    }


def test_younger_hosts_that_verify_clients_switch_off_the_verification_of_no_older_wildcard() -> None:
    site, below = verifying(age=1, below_age=9)

    (line,) = verifying_lines(site)
    excluded = {word[1:] for word in line if word.startswith("!")}
    assert excluded > set(below[:9])
    assert len(excluded) < len(below)
    # Whom the wildcard has verified does not pass at a host that it does not exclude.
    entries = site.render()["ingress-clients.map"].splitlines()
    assert {entry.split()[0] for entry in entries if entry} == {WILDCARD, *excluded}
    assert {one for one in site.reasons if one[1] == "ClientsNotAsked"} == {("Ingress victim/many", "ClientsNotAsked")}


def test_of_two_ingresses_of_one_age_the_first_namespace_has_the_host() -> None:
    first = evil(rule(HOST, path("/", "web", kind="Exact")), age=1)

    assert routes(victim(rule(HOST, path("/", "web"))), first) == {f"exact {HOST}|/": "attacker"}


@pytest.mark.slow
def test_many_ingresses_of_one_host_cost_what_changes() -> None:
    def part(number: int, where: str = "") -> Resource:
        make = victim if number % 2 else evil
        return make(rule(HOST, path(where or f"/p{number}", "web")), name=f"part{number}", age=1 + number % 20)

    site = Site(*map(part, range(300)))
    site.render()

    def changed(resource: Resource) -> int:
        site.put(resource)
        return site.renderer.render_here(site.stores).fragments_rendered

    alone = changed(victim(rule("alone.example.org", path("/", "web")), name="alone"))
    assert changed(part(200, "/other")) <= alone
    assert changed(part(400)) <= alone
    site.render()
