"""An object is served as it is, by its last good outputs as a whole, or not at all; never in part."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import ConfigRendered, Quarantined, Released
from tests.support.components.pipeline import HEAD, Bench
from tests.support.kubernetes import service

HOSTS = """\
{% each service in resources.services as "hosts" %}
{% if rejected() %}
{% fragment "closed" for service %}
{{ service.spec.host | hostname }} closed
{% endfragment %}
{% else %}
{{ service.spec.host | hostname }} {{ ident(service.metadata.name) }}
{% endif %}
{% endeach %}
"""
ALIASES = """\
{% each service in resources.services as "aliases" if service.spec.alias %}
{{ service.spec.alias | hostname }} {{ ident(service.metadata.name) }}
{% endeach %}
"""
BACKENDS = (
    HEAD
    + """\
{% each service in resources.services as "backends" %}
backend {{ ident(service.metadata.name) }}
    balance {{ service.spec.balance | word }}
{% endeach %}
"""
)
MAPS = {"hosts.map": {"template": HOSTS}, "aliases.map": {"template": ALIASES}}


def shop(version: str, **spec: Any) -> Resource:
    resource = service("shop", **({"host": "shop.test", "alias": "alias.test", "balance": "source"} | spec))
    resource["metadata"]["resourceVersion"] = version
    return resource


class Site(Bench):
    """Three fragments for each Service, in three outputs."""

    def __init__(self, binary: Path) -> None:
        super().__init__(binary, BACKENDS, maps=MAPS)

    async def served(self, *resources: Resource) -> tuple[str, str, str]:
        """Write *resources*, run a cycle, and return what the three outputs have of the Service."""
        self.put(*resources)
        valid = await self.run()
        files = {name: file.content.decode() for name, file in valid.generation.files.items()}
        hosts, aliases = (
            next(text for name, text in files.items() if name.endswith(end)) for end in ("hosts.map", "aliases.map")
        )
        return hosts.strip(), aliases.strip(), valid.generation.text.removeprefix(HEAD).strip()

    def rendered_fragments(self) -> int:
        """Return how many fragments have been rendered since the last call, in all rounds."""
        return sum(event.fragments_rendered for event in self.reported() if isinstance(event, ConfigRendered))


V1 = ("shop.test shop", "alias.test shop", "backend shop\n    balance 'source'")

BAD: dict[str, dict[str, Any]] = {
    "first fragment": {"host": "not a host"},
    "second fragment": {"alias": "~^www"},
    "last fragment": {"balance": "two words\n"},
    "haproxy": {"balance": "nonsense"},
}
"""Fields that break one fragment each, when rendered or in the eyes of HAProxy."""


@pytest.fixture
def site(haproxy_binary: Path) -> Site:
    return Site(haproxy_binary)


@pytest.mark.haproxy
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_rejected_version_leaves_the_last_good_one_as_a_whole(site: Site, bad: dict[str, Any]) -> None:
    assert await site.served(shop("1")) == V1

    good_else = {"host": "new.test", "alias": "newer.test", "balance": "first"}
    during = await site.served(shop("2", **(good_else | bad)))
    still = await site.served(shop("3", **(good_else | bad)))
    after = await site.served(shop("4", **good_else))

    assert (during, still) == (V1, V1)
    assert after == ("new.test shop", "newer.test shop", "backend shop\n    balance 'first'")
    story = [type(event) for event in site.reported() if isinstance(event, Quarantined | Released)]
    assert story == [Quarantined, Released]


@pytest.mark.haproxy
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_object_that_was_never_good_is_not_served_but_closed_where_it_can_be(
    site: Site, bad: dict[str, Any]
) -> None:
    served = await site.served(shop("1", **bad))

    assert served == ("" if "host" in bad else "shop.test closed", "", "")
    assert await site.served(shop("2")) == V1


@pytest.mark.haproxy
async def test_object_that_was_closed_has_no_good_version_to_come_back_to(site: Site) -> None:
    await site.served(shop("1", alias="~^www"))

    assert await site.served(shop("2", balance="nonsense")) == ("shop.test closed", "", "")


@pytest.mark.haproxy
async def test_good_version_outlives_an_iteration(site: Site) -> None:
    await site.served(shop("1"))
    site.configure(BACKENDS + "# another configuration\n", maps=MAPS)

    hosts, aliases, backends = await site.served(shop("2", host="new.test", alias="~^www"))

    assert (hosts, aliases) == V1[:2]
    assert V1[2] in backends


@pytest.mark.haproxy
async def test_deleted_object_leaves_no_good_version(site: Site) -> None:
    await site.served(shop("1"))
    site.services.replace([])
    assert await site.served() == ("", "", "")

    assert await site.served(shop("2", alias="~^www")) == ("shop.test closed", "", "")


def made(uid: str, resource: Resource) -> Resource:
    """Return *resource* as the object with *uid*."""
    resource["metadata"]["uid"] = uid
    return resource


@pytest.mark.haproxy
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_recreated_object_has_no_good_version_of_the_deleted_one(site: Site, bad: dict[str, Any]) -> None:
    closed = ("" if "host" in bad else "shop.test closed", "", "")
    assert await site.served(made("a", shop("1"))) == V1
    assert await site.served(made("a", shop("2", **bad))) == V1

    assert await site.served(made("b", shop("3", **bad))) == closed
    assert await site.served(made("b", shop("4", **bad, other="field"))) == closed
    assert await site.served(made("b", shop("5"))) == V1
    assert await site.served(made("b", shop("6", **bad))) == V1
    # Deleted and created before any cycle saw that, and never rejected before.
    await site.served(made("b", shop("7")))
    assert await site.served(made("c", shop("8", **bad))) == closed


@pytest.mark.haproxy
async def test_recreated_object_has_no_good_version_of_the_deleted_one_before_that_is_checked(site: Site) -> None:
    other = service("other", host="other.test", alias="", balance="source")
    assert (await site.served(made("a", shop("1")), other))[1] == V1[1]
    site.services.replace([other])
    await site.pipeline.prepare("c8")
    site.put(made("b", shop("2", alias="")))
    await site.pipeline.prepare("c9")

    # The new object had no alias, so that of the deleted one does not return.
    hosts, aliases, backends = await site.served(made("b", shop("3", balance="two words\n")))

    assert "shop.test shop" in hosts
    assert (aliases, "backend shop\n    balance 'source'" in backends) == ("", True)


@pytest.mark.haproxy
async def test_fragments_that_are_apart_have_no_output_of_a_deleted_object(haproxy_binary: Path) -> None:
    site = Site(haproxy_binary)
    apart = {"aliases.map": {"template": ALIASES.replace('"aliases"', '"aliases" apart')}}
    site.configure(BACKENDS, maps={**MAPS, **apart})
    assert await site.served(made("a", shop("1"))) == V1

    assert await site.served(made("b", shop("2", alias="~^www"))) == (V1[0], "", V1[2])


@pytest.mark.haproxy
async def test_others_look_up_no_version_of_a_deleted_object(haproxy_binary: Path) -> None:
    site = Site(haproxy_binary)
    lookups = (
        '{% each service in resources.services as "aliases" if service.metadata.name == "other" %}\n'
        '{{ resources.services.pick("spec.balance", "default", "shop") | join("+") }} x\n'
        "{% endeach %}\n"
    )
    site.configure(BACKENDS, maps={**MAPS, "aliases.map": {"template": lookups}})
    other = service("other", host="other.test", balance="source")
    assert (await site.served(made("a", shop("1")), other))[1].split() == ["source", "x"]
    assert (await site.served(made("a", shop("2", balance="nonsense"))))[1].split() == ["source", "x"]

    assert (await site.served(made("b", shop("3", balance="nonsense"))))[1].split() == ["nonsense", "x"]


@pytest.mark.haproxy
async def test_fragments_that_are_apart_fail_for_themselves(haproxy_binary: Path) -> None:
    site = Site(haproxy_binary)
    site.configure(
        BACKENDS, maps={**MAPS, "aliases.map": {"template": ALIASES.replace('"aliases"', '"aliases" apart')}}
    )
    assert await site.served(shop("1")) == V1

    served = await site.served(shop("2", host="new.test", alias="~^www", balance="first"))

    assert served == ("new.test shop", "alias.test shop", "backend shop\n    balance 'first'")


@pytest.mark.haproxy
async def test_rejection_costs_the_fragments_of_the_object_alone(site: Site) -> None:
    others = [service(f"s{number}", host=f"s{number}.test", alias="", balance="source") for number in range(50)]
    await site.served(shop("1"), *others)
    site.reported()

    await site.served(shop("2", alias="~^www"))
    rejected = site.rendered_fragments()
    await site.served(shop("3"))
    released = site.rendered_fragments()
    await site.served(others[0])

    # Each fragment renders once, and the two that do not fail render again to return the last good output.
    assert (rejected, released) == (5, 6)
    assert site.rendered_fragments() == 0


@pytest.mark.haproxy
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_version_that_is_deployed_before_its_check_is_a_good_one(site: Site, bad: dict[str, Any]) -> None:
    await site.served(service("other", host="other.test", alias="", balance="source"))
    site.put(shop("1"))
    await site.pipeline.prepare("c9")

    hosts, aliases, backends = await site.served(shop("2", **bad))

    assert "shop.test shop" in hosts
    assert (aliases, "backend shop\n    balance 'source'" in backends) == ("alias.test shop", True)


@pytest.mark.haproxy
async def test_others_look_up_the_last_good_version_as_well(haproxy_binary: Path) -> None:
    site = Site(haproxy_binary)
    lookups = (
        '{% each service in resources.services as "aliases" if service.metadata.name == "other" %}\n'
        '{% for found in resources.services.get("default", "shop") %}\n'
        "{{ found.spec.host | hostname }} found\n"
        "{% endfor %}\n"
        ' {{ resources.services.pick("spec.balance", "default", "shop") | join("+") }}\n'
        "{% endeach %}\n"
    )
    site.configure(BACKENDS, maps={**MAPS, "aliases.map": {"template": lookups}})
    other = service("other", host="other.test", balance="source")
    assert (await site.served(shop("1"), other))[1].split() == ["shop.test", "found", "source"]

    during = await site.served(shop("2", host="new.test", balance="nonsense"))
    still = await site.served(shop("3", host="newer.test", balance="nonsense"))
    after = await site.served(shop("4", host="newest.test", balance="first"))
    site.services.replace([other])
    gone = await site.served()

    assert during[1].split() == still[1].split() == ["shop.test", "found", "source"]
    assert after[1].split() == ["newest.test", "found", "first"]
    assert gone[1].split() == []


@pytest.mark.haproxy
async def test_rejected_object_that_is_deleted_is_not_looked_up_any_more(haproxy_binary: Path) -> None:
    site = Site(haproxy_binary)
    lookups = (
        '{% each service in resources.services as "aliases" if service.metadata.name == "other" %}\n'
        '{% for found in resources.services.get("default", "shop") %}\n'
        "{{ found.spec.host | hostname }} found\n"
        "{% endfor %}\n"
        "{% endeach %}\n"
    )
    site.configure(BACKENDS, maps={**MAPS, "aliases.map": {"template": lookups}})
    other = service("other", host="other.test", balance="source")
    await site.served(shop("1"), other)
    assert (await site.served(shop("2", host="new.test", balance="nonsense")))[1].split() == ["shop.test", "found"]

    site.services.replace([other])

    assert (await site.served()) == ("other.test other", "", "backend other\n    balance 'source'")


@pytest.mark.haproxy
async def test_version_without_a_guard_is_not_a_fallback_for_one_that_asks_for_it(haproxy_binary: Path) -> None:
    site = Site(haproxy_binary)
    guarded = BACKENDS.replace(
        "backend {{", "{% for name in service.spec.guards %}{% do guarded(name) %}{% endfor %}\nbackend {{"
    )
    site.configure(guarded, maps=MAPS)
    closed = ("shop.test closed", "", "")
    good_and_guarded = ("shop.test shop", "alias.test shop", "backend shop\n    balance 'source'")

    assert await site.served(shop("1", guards=[])) == good_and_guarded
    assert await site.served(shop("2", guards=["list"], balance="nonsense")) == closed
    assert await site.served(shop("3", guards=["list"])) == good_and_guarded
    # It has had that one, but not the other.
    assert await site.served(shop("4", guards=["list"], balance="nonsense")) == good_and_guarded
    assert await site.served(shop("5", guards=["list", "password"], balance="nonsense")) == closed
    assert (await site.served(shop("6", guards=["list"], alias="~^www")))[2] == ""
    assert await site.served(shop("7", guards=[])) == good_and_guarded


@pytest.mark.haproxy
async def test_what_closes_an_object_comes_after_what_others_give(site: Site) -> None:
    others = [service(name, host=f"{name}.test", alias="", balance="source") for name in ("a", "z")]

    closed = await site.served(shop("1", alias="~^www"), *others)
    served = await site.served(shop("2"))

    assert closed[0].split("\n") == ["a.test a", "z.test z", "shop.test closed"]
    assert served[0].split("\n") == ["a.test a", "shop.test shop", "z.test z"]
