"""A tenant who uses a content together with others cannot have it rejected by the limits of the own objects."""

from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import ref_of
from tests.pipeline.contents.bench import CONFIG, EACH, ContentBench
from tests.support.kubernetes import service

pytestmark = pytest.mark.haproxy
SHARED = (
    CONFIG
    + """\
{% each svc in resources.services as "service" %}
backend {{ ident(svc.metadata.namespace, svc.metadata.name) }}
{% for line in http.fetch("https://lists.example.com/shared").splitlines() %}
    server s{{ loop.index }} {{ line | address }}:80
{% endfor %}
{% for number in range(svc.metadata.fill | default(0)) %}
    # {{ number }}
{% endfor %}
{% if svc.metadata.network is defined %}
    http-request deny if { src -- {{ svc.metadata.network | word }} }
{% endif %}
{% if svc.metadata.unwanted is defined and svc.metadata.unwanted in http.fetch("https://lists.example.com/shared") %}
{{ fail("unwanted") }}
{% endif %}
{% if svc.metadata.broken is defined %}
{{ fail("broken") }}
{% endif %}

{% endeach %}
"""
)


def tenant(**fields: Any) -> dict[str, Any]:
    """Return the Service of a tenant; *fields* become fields of its metadata."""
    found = service("web", namespace="tenant")
    found["metadata"].update(fields)
    return found


async def test_a_tenant_who_reaches_a_limit_with_a_content_keeps_it_from_no_other(haproxy_binary: Path) -> None:
    for limit in ("maxNamespaceBytes", "maxFragmentBytes"):
        bench = ContentBench(haproxy_binary, SHARED, {"shared": "10.0.0.1\n"}, templating={limit: 400})
        bench.put(service("web"), tenant(fill=37))
        await bench.made()
        await bench.give(shared="10.0.0.1\n10.0.0.2\n10.0.0.3\n")

        text = (await bench.made()).text
        assert (text.count("10.0.0.3:80"), text.count("10.0.0.1:80"), bench.rejected) == (1, 2, [])
        assert [one.ref.namespace for one in bench.quarantine.objects] == ["tenant"]
        # Without a key that is revoked, it has room again.
        await bench.give(shared="10.0.0.3\n")
        text = (await bench.made()).text
        assert (text.count("10.0.0.3:80"), text.count("10.0.0.1:80"), bench.rejected) == (2, 0, [])
        assert bench.quarantine.objects == ()


async def test_a_tenant_whose_object_fails_with_a_new_content_keeps_it_from_no_other(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, SHARED, {"shared": "10.0.0.1\n"})
    bench.put(service("web"), tenant(unwanted="10.0.0.2"))
    await bench.made()
    await bench.give(shared="10.0.0.2\n")

    text = (await bench.made()).text
    assert (text.count("10.0.0.2:80"), text.count("10.0.0.1:80"), bench.rejected) == (1, 1, [])
    assert [one.ref.namespace for one in bench.quarantine.objects] == ["tenant"]
    await bench.give(shared="10.0.0.3\n")
    assert (await bench.made()).text.count("10.0.0.3:80") == 2
    assert bench.quarantine.objects == ()
    # A content that nobody else can use is at fault.
    await bench.give(shared="no address\n")
    assert (await bench.made()).text.count("10.0.0.3:80") == 2
    assert [name for name, _ in bench.rejected] == ["shared"]


async def test_the_smaller_part_of_the_namespaces_keeps_a_content_from_no_other(haproxy_binary: Path) -> None:
    def owned(namespace: str, **fields: Any) -> dict[str, Any]:
        found = tenant(resourceVersion=str(len(fields)), **fields)
        return {**found, "metadata": {**found["metadata"], "namespace": namespace}}

    bench = ContentBench(haproxy_binary, SHARED, {"shared": "10.0.0.1\n"})
    bench.put(service("web"), owned("shop"), *(owned(name, unwanted="10.0.0.2") for name in ("a", "b")))
    await bench.made()
    await bench.give(shared="10.0.0.2\n")

    text = (await bench.made()).text
    assert (text.count("10.0.0.2:80"), text.count("10.0.0.1:80"), bench.rejected) == (2, 2, [])
    assert sorted(one.ref.namespace for one in bench.quarantine.objects) == ["a", "b"]
    # Of five namespaces three fail: the content is at fault.
    bench.put(owned("c", unwanted="10.0.0.4"))
    await bench.give(shared="10.0.0.3\n")
    await bench.made()
    assert bench.quarantine.count == 0
    bench.put(*(owned(name, unwanted="10.0.0.4", other=1) for name in ("a", "b")))
    await bench.give(shared="10.0.0.4\n")
    assert (await bench.made()).text.count("10.0.0.3:80") == 5
    assert [name for name, _ in bench.rejected] == ["shared"]


async def test_of_several_new_contents_a_tenant_keeps_none_from_others(haproxy_binary: Path) -> None:
    several = SHARED.replace(
        "{% if svc.metadata.network is", "    # {{ http.fetch('https://lists.example.com/other').strip() }}\n"
        "{% if svc.metadata.network is"
    )  # fmt: skip
    bench = ContentBench(haproxy_binary, several, {"shared": "10.0.0.1\n", "other": "first\n"})
    bench.put(service("web"), tenant(unwanted="10.0.0.2"))
    await bench.made()
    await bench.give(shared="10.0.0.2\n", other="second\n")

    text = (await bench.made()).text
    assert (text.count("10.0.0.2:80"), text.count("10.0.0.1:80"), bench.rejected) == (1, 1, [])
    assert (text.count("# second"), text.count("# first")) == (1, 1)


async def test_a_tenant_who_fails_for_a_limit_or_else_for_a_fault_rejects_no_content(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, SHARED, {"shared": "10.0.0.1\n" * 20}, templating={"maxFragmentBytes": 400})
    bench.put(service("web"), tenant(broken=True))
    await bench.made()
    await bench.give(shared="10.0.0.2\n")

    assert (await bench.made()).text.count("10.0.0.2:80") == 1
    assert bench.rejected == []


async def test_a_tenant_whose_changes_wait_keeps_a_content_from_no_other(haproxy_binary: Path) -> None:
    bench = ContentBench(haproxy_binary, SHARED, {"shared": "10.0.0.1\n"})
    bench.put(service("web"), tenant())
    await bench.made()
    for _ in range(3):
        bench.quarantine.setbacks.record({ref_of(tenant()): Problem(message="slow")}, trio.current_time())
    await bench.give(shared="10.0.0.2\n")

    text = (await bench.made()).text
    assert (text.count("10.0.0.2:80"), text.count("10.0.0.1:80"), bench.rejected) == (1, 1, [])


async def test_a_tenant_whose_object_haproxy_rejects_with_any_content_keeps_a_content_from_no_other(
    haproxy_binary: Path,
) -> None:
    bench = ContentBench(haproxy_binary, SHARED, {"shared": "10.0.0.1\n"})
    bench.put(service("web"), tenant())
    await bench.made()
    # The parser takes the network.
    bench.put(tenant(network="192.0.2.0/99", resourceVersion="2"))
    await bench.give(shared="10.0.0.2\n")

    text = (await bench.made()).text
    # Its good version has the new content, too.
    assert (text.count("10.0.0.2:80"), text.count("192.0.2.0/99"), bench.rejected) == (2, 0, [])
    assert [one.ref.namespace for one in bench.quarantine.objects] == ["tenant"]
    bench.put(tenant(resourceVersion="3"))
    assert (await bench.made()).text.count("10.0.0.2:80") == 2


async def test_a_content_that_haproxy_rejects_is_found_beside_an_object_that_it_rejects(haproxy_binary: Path) -> None:
    networks = EACH.replace("    server", "    http-request deny if { src -- {{ line | word }} }\n    server").replace(
        "{{ line | address }}", "10.0.0.1"
    )
    bench = ContentBench(haproxy_binary, networks, dict.fromkeys(("web", "api", "bad"), "192.0.2.0/24\n"))
    bench.put(service("web"), service("api"))
    await bench.made()
    # Its first content: HAProxy rejects the object with and without that of the others.
    bench.put(service("bad"))
    await bench.give(web="192.0.2.0/25\n", api="192.0.2.0/99\n", bad="192.0.2.0/98\n")

    text = (await bench.made()).text
    assert (text.count("192.0.2.0/25"), text.count("192.0.2.0/24")) == (1, 1)
    assert sorted(name for name, _ in bench.rejected) == ["api", "bad"]


async def test_a_tenant_whose_object_haproxy_rejects_with_a_new_content_keeps_it_from_no_other(
    haproxy_binary: Path,
) -> None:
    # A prefix of 32 bits and the last digits of an address: valid with the first content alone.
    prefix = SHARED.replace(
        "{{ svc.metadata.network | word }}",
        "{{ (svc.metadata.network ~ http.fetch('https://lists.example.com/shared').strip()[7:]) | word }}",
    )
    bench = ContentBench(haproxy_binary, prefix, {"shared": "10.0.0.1\n"})
    bench.put(service("web"), tenant(network="192.0.2.1/3"))
    await bench.made()
    assert bench.quarantine.count == 0
    await bench.give(shared="10.0.0.9\n")

    text = (await bench.made()).text
    assert (text.count("10.0.0.9:80"), text.count("10.0.0.1:80"), bench.rejected) == (1, 1, [])
    assert [one.ref.namespace for one in bench.quarantine.objects] == ["tenant"]
    # With objects of two namespaces, the content is at fault.
    other = tenant(network="192.0.2.1/3", resourceVersion="1")
    other["metadata"]["namespace"] = "other"
    bench.put(other, tenant(network="192.0.2.1/3", resourceVersion="2"))
    await bench.give(shared="10.0.0.1\n")
    await bench.made()
    assert bench.quarantine.count == 0
    await bench.give(shared="10.0.0.9\n")
    assert (await bench.made()).text.count("10.0.0.1:80") == 3
    assert [name for name, _ in bench.rejected] == ["shared"]
