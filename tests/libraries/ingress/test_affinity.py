"""The affinity cookie of ingress-nginx annotations, on the wire."""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection
from http.cookies import SimpleCookie

import pytest
import trustme

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.tenants.tenants import ALL, NGINX
from tests.support.components.rendering import Rendered
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret
from tests.support.traffic.servers import PATIENCE, QuietHandler, answering, ask, serving

pytestmark = pytest.mark.haproxy

HOST = "shop.example.com"


def sticky(name: str, *paths: str, to: str = "web", **values: str) -> Resource:
    annotations = {NGINX + "affinity": "cookie"}
    annotations |= {NGINX + "session-cookie-" + key.replace("_", "-"): value for key, value in values.items()}
    return ingress(name, rule(HOST, *(path(given, to) for given in paths)), annotations=annotations)


def cookie_of(text: str) -> tuple[str, dict[str, str]]:
    """Return the name of the one cookie in a Set-Cookie header, and its attributes that are present."""
    (found,) = SimpleCookie(text).values()
    return found.key, {name: str(value) for name, value in found.items() if value}


@contextmanager
def edge(cluster: Cluster, *objects: Resource) -> Iterator[Rendered]:
    with serving("web") as ports:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=ports["web"])
        yield cluster.serve(*objects, service("web"), slices, libraries=ALL)


def test_the_path_is_that_of_the_ingress(cluster: Cluster) -> None:
    with edge(cluster, sticky("shop", "/shop", "/shop/cart/", "/blog"), sticky("root", "/")):
        asked = ["/shop", "/shop/a/b", "/shop/cart", "/shop/cart/1", "/blog/x?y=/shop", "/shopping", "/%73hop/a"]
        cookies = [ask(cluster.http_port, HOST, target).headers["set-cookie"] for target in asked]

    assert [cookie_of(text)[1]["path"] for text in cookies] == [
        *("/shop", "/shop", "/shop/cart", "/shop/cart", "/blog", "/", "/shop")
    ]
    assert not any(re.search("path=.*path=", text, re.IGNORECASE) for text in cookies)


def test_two_applications_on_one_host_keep_their_clients(cluster: Cluster) -> None:
    with edge(cluster, sticky("a", "/a"), sticky("b", "/b")):
        first = ask(cluster.http_port, HOST, "/a/1").headers["set-cookie"]
        second = ask(cluster.http_port, HOST, "/b/1").headers["set-cookie"]
        kept = ask(cluster.http_port, HOST, "/a/2", headers={"Cookie": first.split(";")[0]})

    assert cookie_of(first)[1]["path"] == "/a"
    assert cookie_of(second)[1]["path"] == "/b"
    assert "set-cookie" not in kept.headers


def test_a_named_path_replaces_that_of_the_ingress(cluster: Cluster) -> None:
    with edge(cluster, sticky("shop", "/shop", path="/s")):
        text = ask(cluster.http_port, HOST, "/shop").headers["set-cookie"]

    # Browsers take the last of two.
    assert re.findall("path=([^;]*)", text, re.IGNORECASE)[-1] == "/s"


def test_another_path_of_an_ingress_is_an_entry_of_a_map(cluster: Cluster) -> None:
    web = [service("web"), endpoint_slice("web", endpoint("127.0.0.1"), ports=80)]
    before = cluster.render(sticky("shop", "/shop"), *web, libraries=ALL)
    after = cluster.render(sticky("shop", "/shop", "/cart"), *web, libraries=ALL)

    assert after.text == before.text
    (name,) = (name for name in after.files if "cookie-paths" in name)
    assert set(after.files[name].split("\n")) - set(before.files[name].split("\n")) == {"/cart/ /cart"}


def test_both_ends_of_life_are_sent(cluster: Cluster) -> None:
    objects = [sticky("both", "/", expires="172800", max_age="259200"), sticky("date", "/date", expires="60")]
    with edge(cluster, *objects):
        answers = [ask(cluster.http_port, HOST, target) for target in ("/", "/date")]
        both, date = (cookie_of(answer.headers["set-cookie"])[1] for answer in answers)

    assert both["max-age"] == "259200"
    assert "max-age" not in date
    assert (parsedate_to_datetime(both["expires"]) - parsedate_to_datetime(date["expires"])).total_seconds() > 172700


@pytest.mark.parametrize("values", [{}, {"secure": "false"}, {"secure": "true"}], ids=str)
def test_the_cookie_is_secure_over_https(cluster: Cluster, values: dict[str, str]) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert(HOST)
    site = tls_secret("site", issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())
    shop = sticky("shop", "/", **values)
    shop["spec"]["tls"] = [{"hosts": [HOST], "secretName": "site"}]
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with edge(cluster, shop, site):
        plain = ask(cluster.http_port, HOST).headers["set-cookie"]
        secure = ask(cluster.https_port, HOST, tls=context).headers["set-cookie"]

    assert plain.count("ecure") == (values.get("secure") == "true")
    assert secure.count("ecure") == 1


def test_cookies_of_the_application_stay_what_they_are(cluster: Cluster) -> None:
    baked = ["INGRESSCOOKIE2=x; path=/", "xINGRESSCOOKIE=x; path=/"]

    class Baker(QuietHandler):
        def answer(self) -> None:
            self.send_response(200)
            for cookie in baked:
                self.send_header("Set-Cookie", cookie)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with answering(Baker) as port:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=port)
        cluster.serve(sticky("shop", "/shop", expires="9"), service("web"), slices, libraries=ALL)
        connection = HTTPConnection("127.0.0.1", cluster.http_port, timeout=PATIENCE)
        connection.request("GET", "/shop", headers={"Host": HOST})
        found = connection.getresponse().headers.get_all("set-cookie") or []
        connection.close()

    assert found[:2] == baked
    assert cookie_of(found[2])[1]["path"] == "/shop"
