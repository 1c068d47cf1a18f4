"""JSON Web Tokens and API keys on a real HAProxy: which requests reach the endpoint, and what it learns."""

import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.requests.tokens import (
    CLAIMS,
    EC_KEY,
    GIVEN,
    HOST,
    KEYS,
    LIBRARIES,
    NEVER,
    OTHER_RSA,
    RSA_KEY,
    SECRET,
    WIDE_EC,
    by_ec,
    by_rsa,
    by_secret,
    encoded,
    key_set,
    of_ec,
    of_rsa,
    protected,
    public_pem,
    secret,
    token,
)
from tests.support.components.rendering import Rendered
from tests.support.kubernetes import endpoint, endpoint_slice, path, rule, service
from tests.support.traffic.servers import PATIENCE, Answer, ask, serving


@contextmanager
def site(cluster: Cluster, annotations: Mapping[str, str], *objects: Resource, **others: str) -> Iterator[Rendered]:
    with serving("web") as running:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"])
        yield cluster.serve(protected(annotations, **others), service("web"), slices, *objects, libraries=LIBRARIES)


def send(cluster: Cluster, bearer: str, **headers: str) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(cluster.http_port, HOST, headers={"Authorization": f"Bearer {bearer}", **given} if bearer else given)


@pytest.mark.haproxy
def test_a_token_of_each_key_is_taken(cluster: Cluster) -> None:
    with site(cluster, GIVEN, KEYS) as rendered:
        assert rendered.rejections == ()
        for algorithm, sign in (
            ("RS256", by_rsa(RSA_KEY)),
            ("RS512", by_rsa(RSA_KEY, hashes.SHA512())),
            ("ES256", by_ec(EC_KEY)),
            ("HS256", by_secret(SECRET)),
        ):
            assert send(cluster, token(algorithm, sign)).status == 200, algorithm

        # No secret is in the configuration.
        assert base64.b64encode(SECRET).decode() not in rendered.text


@pytest.mark.haproxy
def test_no_other_token_is_taken(cluster: Cluster) -> None:
    good = token("RS256", by_rsa(RSA_KEY))
    head, payload, signature = good.split(".")
    forged = encoded(json.dumps({**CLAIMS, "sub": "root"}).encode())
    none = encoded(b'{"alg":"none"}')
    bad = {
        "nothing": "",
        "no token": "abc",
        "other key": token("RS256", by_rsa(OTHER_RSA)),
        "no signature": f"{head}.{payload}.",
        "two parts": f"{head}.{payload}",
        "other payload": f"{head}.{forged}.{signature}",
        "none": token("none", lambda _text: b""),
        "None": token("None", lambda _text: b""),
        "none with a signature": f"{none}.{payload}.{signature}",
        "public key as a secret": token("HS256", by_secret(public_pem(RSA_KEY))),
        "public key of the file as a secret": token("HS256", by_secret(public_pem(RSA_KEY).strip())),
        "empty secret": token("HS256", by_secret(b"")),
        "algorithm of another key": token("ES256", by_rsa(RSA_KEY)),
        "algorithm of no key": token("RS384", by_rsa(RSA_KEY)),
        "algorithm that is named differently": token("HS256", by_rsa(RSA_KEY)),
        "another curve": token("ES256", by_ec(WIDE_EC)),
        "another curve and its algorithm": token("ES384", by_ec(WIDE_EC, hashes.SHA384())),
    }
    with site(cluster, GIVEN, KEYS):
        assert send(cluster, good).status == 200
        for case, bearer in bad.items():
            answer = send(cluster, bearer)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), case
        assert ask(cluster.http_port, HOST, headers={"Authorization": f"Basic {good}"}).status == 401
        assert ask(cluster.http_port, HOST, f"/?access_token={good}").status == 401


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 200),
        ({"aud": "cart"}, 200),
        ({"aud": ["other", "cart"]}, 200),
        ({"aud": "sho"}, 401),
        ({"aud": ["shopping"]}, 401),
        ({"aud": []}, 401),
        ({"aud": None}, 401),
        ({"aud": '["shop"]'}, 401),
        ({"iss": "https://issuer.test"}, 401),
        ({"iss": ["https://issuer.test/"]}, 401),
        ({"iss": None}, 401),
        ({"exp": 1}, 401),
        ({"exp": None}, 401),
        ({"exp": "never"}, 401),
        ({"exp": NEVER + 0.5}, 200),
        ({"nbf": 1}, 200),
        ({"nbf": NEVER}, 401),
        ({"nbf": "later"}, 401),
        ({"exp": -1}, 401),
        ({"exp": str(NEVER) + "x"}, 401),
    ],
    ids=str,
)
def test_the_claims_must_be_those_that_are_asked_for(cluster: Cluster, changes: dict[str, Any], status: int) -> None:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    with site(cluster, GIVEN, KEYS):
        assert send(cluster, token("RS256", by_rsa(RSA_KEY), claims)).status == status


@pytest.mark.haproxy
def test_claims_become_headers_that_no_client_can_set(cluster: Cluster) -> None:
    given = {**GIVEN, "jwt-claims-to-headers": "X-User=sub, X-Team=org.team, X-Number=number"}
    sign = by_rsa(RSA_KEY)
    with site(cluster, given, KEYS):
        claims = {**CLAIMS, "org": {"team": "red"}, "number": 7}
        answer = send(cluster, token("RS256", sign, claims), X_User="root", X_Team="root", x_number="0")
        for line in ("x-user: joe", "x-team: red", "x-number: 7"):
            assert line in answer.body.split("\n")
        assert "root" not in answer.body

        # Without the claim the header is absent, in every spelling of applications.
        answer = ask(
            cluster.http_port,
            HOST,
            headers={"Authorization": f"Bearer {token('RS256', sign)}", "X_Team": "root", "X-Team": "root"},
        )
        assert answer.status == 200
        assert "root" not in answer.body


@pytest.mark.haproxy
def test_no_client_sets_a_claim_whose_header_has_an_underscore(cluster: Cluster) -> None:
    given = {**GIVEN, "jwt-claims-to-headers": "X_User=sub"}
    bearer = f"Bearer {token('RS256', by_rsa(RSA_KEY))}"
    with site(cluster, given, KEYS):
        answer = ask(cluster.http_port, HOST, headers={"Authorization": bearer, "X-User": "root", "X.User": "root"})
        assert "x_user: joe" in answer.body.split("\n")
        assert "root" not in answer.body


@pytest.mark.haproxy
@pytest.mark.parametrize("escape", [r"\n", r"\r\nX-Admin: yes", r"\u0000", r"\u0000\nX-Admin: yes", r"\u007f", r"\t"])
def test_a_claim_with_a_control_character_sets_no_header(cluster: Cluster, escape: str) -> None:
    payload = json.dumps(CLAIMS).replace("joe", "joe" + escape + "x").encode()
    with site(cluster, {**GIVEN, "jwt-claims-to-headers": "X-User=sub"}, KEYS):
        answer = send(cluster, token("RS256", by_rsa(RSA_KEY), payload))

        # Some versions of HAProxy do not read such a claim at all.
        assert answer.status == 401 or "x-user" not in answer.body
        assert "x-admin" not in answer.body


@pytest.mark.haproxy
def test_a_control_character_behind_a_long_text_of_a_claim_sets_no_header(cluster: Cluster) -> None:
    payload = json.dumps(CLAIMS).replace("joe", " " * 5600 + r"\r\nX-Admin: yes").encode()
    with site(cluster, {**GIVEN, "jwt-claims-to-headers": "X-User=sub"}, KEYS):
        answer = send(cluster, token("RS256", by_rsa(RSA_KEY), payload))

        assert answer.status == 401 or "x-user" not in answer.body
        assert "x-admin" not in answer.body


@pytest.mark.haproxy
def test_two_credentials_are_ambiguous(cluster: Cluster) -> None:
    given = {**GIVEN, "api-key-secret": "clients"}
    good, key = token("RS256", by_rsa(RSA_KEY)), "0123456789abcdef"
    with site(cluster, given, KEYS, secret("clients", app=key.encode())):

        def status(*headers: tuple[str, str]) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", cluster.http_port, timeout=PATIENCE)
            connection.putrequest("GET", "/", skip_host=True)
            for name, value in (("Host", HOST), *headers):
                connection.putheader(name, value)
            connection.endheaders()
            found = connection.getresponse().status
            connection.close()
            return found

        bearer, other = ("Authorization", f"Bearer {good}"), ("Authorization", "Bearer x")
        assert status(bearer, ("X-API-Key", key)) == 200
        assert status(bearer, other, ("X-API-Key", key)) == 401
        assert status(("Authorization", f"Bearer {good}, Bearer x"), ("X-API-Key", key)) == 401
        assert status(bearer, ("X-API-Key", key), ("X-API-Key", "x")) == 401
        assert status(bearer) == 401
        assert status(("X-API-Key", key)) == 401


@pytest.mark.haproxy
@pytest.mark.parametrize("header", ["X-Client", "X_Client"])
def test_the_endpoint_gets_the_client_of_an_api_key_and_not_the_key(cluster: Cluster, header: str) -> None:
    given = {"api-key-secret": "clients", "api-key-header": "X-Key", "api-key-client-header": header}
    clients = secret("clients", app=b"0123456789abcdef\n", other__app=b"fedcba9876543210")
    with site(cluster, given, clients) as rendered:
        for key, client in (("0123456789abcdef", "app"), ("fedcba9876543210", "other.app")):
            answer = ask(cluster.http_port, HOST, headers={"X-Key": key, "X-Client": "root", "X_Key": "more"})
            assert answer.status == 200
            assert f"{header.lower()}: {client}" in answer.body
            assert not {key, "root", "more"} & set(answer.body.replace(": ", "\n").split("\n"))
        for wrong in ("", "app", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdef0"):
            assert ask(cluster.http_port, HOST, headers={"X-Key": wrong} if wrong else {}).status == 401
        assert "0123456789abcdef" not in rendered.text + "".join(rendered.files.values())


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "annotations", [{**GIVEN, "jwt-issuer": "*", "jwt-audience": "*"}, {"api-key-secret": "keys"}], ids=["jwt", "key"]
)
def test_without_the_secret_every_request_is_rejected(cluster: Cluster, annotations: dict[str, str]) -> None:
    with site(cluster, annotations):
        answer = send(cluster, token("none", lambda _text: b""), X_API_Key="")
        assert answer.status == 401
        assert send(cluster, token("RS256", by_rsa(RSA_KEY))).status == 401


@pytest.mark.haproxy
@pytest.mark.parametrize("protects_canary", [True, False])
def test_a_canary_gets_requests_only_with_the_same_credentials(cluster: Cluster, protects_canary: bool) -> None:
    prefix = "nginx.ingress.kubernetes.io/"
    canary = protected(
        GIVEN if protects_canary else {}, **{f"{prefix}canary": "true", f"{prefix}canary-by-header": "X-New"}
    )
    canary["metadata"]["name"] = "canary"
    canary["spec"]["rules"] = [rule(HOST, path("/", "new"))]
    with (
        serving("new") as running,
        site(
            cluster,
            GIVEN,
            KEYS,
            canary,
            service("new"),
            endpoint_slice("new", endpoint("127.0.0.1"), ports=running["new"]),
        ) as rendered,
    ):
        assert rendered.rejections == ()
        good = token("RS256", by_rsa(RSA_KEY))
        assert send(cluster, "", X_New="always").status == 401
        answer = send(cluster, good, X_New="always")
        assert answer.body.split("\n")[0] == ("new" if protects_canary else "web")


@pytest.mark.haproxy
@pytest.mark.parametrize("limits_canary", [True, False])
def test_a_canary_gets_requests_only_with_the_same_rate_limit(cluster: Cluster, limits_canary: bool) -> None:
    prefix = "nginx.ingress.kubernetes.io/"
    canary = protected(
        {"rate-limit": "5"} if limits_canary else {},
        **{f"{prefix}canary": "true", f"{prefix}canary-by-header": "X-New"},
    )
    canary["metadata"]["name"] = "canary"
    canary["spec"]["rules"] = [rule(HOST, path("/", "new"))]
    with serving("new") as running:
        others = [canary, service("new"), endpoint_slice("new", endpoint("127.0.0.1"), ports=running["new"])]
        # Annotations of health may differ.
        with site(cluster, {"rate-limit": "5", "slow-start": "30s"}, *others):
            answer = send(cluster, "", X_New="always")

    assert answer.body.split("\n")[0] == ("new" if limits_canary else "web")


@pytest.mark.haproxy
def test_preflight_requests_need_no_credentials_with_cors_of_another_library(cluster: Cluster) -> None:
    nginx = {"nginx.ingress.kubernetes.io/enable-cors": "true"}
    with site(cluster, GIVEN, KEYS, **nginx) as rendered:
        assert rendered.rejections == ()
        connection = http.client.HTTPConnection("127.0.0.1", cluster.http_port, timeout=PATIENCE)
        headers = {"Host": HOST, "Origin": "https://b.example.com", "Access-Control-Request-Method": "PUT"}
        connection.request("OPTIONS", "/", headers=headers)
        assert connection.getresponse().status == 204
        connection.close()
        assert send(cluster, "").status == 401


@pytest.mark.haproxy
def test_the_keys_of_a_json_web_key_set_count_with_their_algorithms(cluster: Cluster) -> None:
    keys = key_set(
        of_rsa(RSA_KEY, alg="RS512", kid="1", use="sig"),
        of_rsa(OTHER_RSA, use="enc"),
        of_ec(WIDE_EC, "P-384"),
        {"kty": "oct", "k": encoded(SECRET), "alg": "HS256"},
    )
    with site(cluster, GIVEN, secret("keys", jwks__json=keys)):
        assert send(cluster, token("RS512", by_rsa(RSA_KEY, hashes.SHA512()))).status == 200
        assert send(cluster, token("ES384", by_ec(WIDE_EC, hashes.SHA384()))).status == 200
        assert send(cluster, token("HS256", by_secret(SECRET))).status == 200
        assert send(cluster, token("RS256", by_rsa(RSA_KEY))).status == 401
        assert send(cluster, token("RS256", by_rsa(OTHER_RSA))).status == 401


def test_credentials_cannot_be_combined_with_tls_passthrough(cluster: Cluster) -> None:
    web = protected(GIVEN, **{"nginx.ingress.kubernetes.io/ssl-passthrough": "true"})
    rendered = cluster.render(web, service("web"), KEYS, libraries=LIBRARIES)

    assert "jwt-" in rendered.rejected["Ingress default/web"]
    assert "cannot be combined with ssl-passthrough" in rendered.rejected["Ingress default/web"]
