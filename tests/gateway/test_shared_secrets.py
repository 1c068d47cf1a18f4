"""Secrets that Gateways of several namespaces use: a rejected Gateway keeps a renewed certificate from no other one."""

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.gateway.objects import gateway, gateway_class, grant
from tests.gateway.serving import Authority
from tests.support.components.succession import Succession
from tests.support.kubernetes import AGES, tls_secret

LIBRARIES = ("base", "ssl", "gateway")
AUTHORITY = Authority()
FIRST, RENEWED = (AUTHORITY.issue("victim-0.test", "evil-0.test") for _ in range(2))
FILE = "ssl/victim_own.pem"


def gateway_of(namespace: str, version: int, age: int, *, is_broken: bool = False) -> Resource:
    """Return a Gateway that uses the Secret `victim/own`; a broken one has too many lines of certificates."""
    listeners = [
        {
            "name": f"tls-{number}",
            "port": 7443 if namespace == "evil" else 7444,
            "protocol": "HTTPS",
            "hostname": f"{namespace}-{number}.test",
            "tls": {"certificateRefs": [{"name": "own", "namespace": "victim"}]},
        }
        for number in range(6 if is_broken else 1)
    ]
    found = gateway("gw", *listeners)
    return {
        **found,
        "metadata": {
            **found["metadata"],
            "namespace": namespace,
            "creationTimestamp": AGES.format(age),
            "resourceVersion": str(version),
            "uid": namespace,
        },
    }


def secret_of(pair: tuple[str, str], version: int) -> Resource:
    found = tls_secret("own", *pair, namespace="victim")
    return {**found, "metadata": {**found["metadata"], "resourceVersion": str(version)}}


def rejected_in(rendered: Rendered) -> list[tuple[str, bool]]:
    return sorted({(one.subject.namespace, one.has_fallback) for one in rendered.rejections})


def begin(*objects: Resource) -> Succession:
    controller = Succession(LIBRARIES, limits={"max_namespace_certificate_lines": 4})
    permitted = grant("victim", origin="evil", kind="Gateway", to="Secret")
    rendered = controller.render(gateway_class(), permitted, secret_of(FIRST, 1), *objects)
    assert (rendered.rejections, FIRST[0] in rendered.texts[FILE].text) == ((), True)
    return controller


def test_a_rejected_gateway_of_another_namespace_keeps_no_renewed_certificate_from_a_listener() -> None:
    controller = begin(gateway_of("evil", 1, 1), gateway_of("victim", 1, 5))
    rendered = controller.render(gateway_of("evil", 2, 1, is_broken=True))
    assert rejected_in(rendered) == [("evil", True)]

    rendered = controller.render(secret_of(RENEWED, 2))

    assert RENEWED[0] in rendered.texts[FILE].text
    # The rejected Gateway is served as before, and with the renewed certificate, too.
    assert rejected_in(rendered) == [("evil", True)]
    assert rendered.text.count("frontend gateway-port::") == 2


def test_a_rejected_gateway_shows_the_renewed_certificate_when_no_other_one_has_the_file_any_more() -> None:
    controller = begin(gateway_of("evil", 1, 1), gateway_of("victim", 1, 5))
    controller.render(gateway_of("evil", 2, 1, is_broken=True))
    controller.render(secret_of(RENEWED, 2))
    controller.delete(gateway_of("victim", 1, 5))

    rendered = controller.render()

    assert rejected_in(rendered) == [("evil", True)]
    assert RENEWED[0] in rendered.texts[FILE].text
    rendered = controller.render(gateway_of("evil", 3, 1))
    assert (rendered.rejections, RENEWED[0] in rendered.texts[FILE].text) == ((), True)


def test_of_two_rejected_gateways_that_of_the_namespace_of_the_secret_has_its_certificate() -> None:
    controller = begin(gateway_of("evil", 1, 1), gateway_of("victim", 1, 5))
    controller.render(gateway_of("evil", 2, 1, is_broken=True))
    controller.render(secret_of(RENEWED, 2))

    rendered = controller.render(gateway_of("victim", 2, 5, is_broken=True))

    assert rejected_in(rendered) == [("evil", True), ("victim", True)]
    assert RENEWED[0] in rendered.texts[FILE].text
    assert rendered.text.count("frontend gateway-port::") == 2
