"""Attacks on running processes: the objects to write, the requests to send, and the expected results.

A new attack is a row of `ATTACKS`: objects to write, and requests to send after the
controller has processed the objects.
"""

import base64
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import trio

from haptic_trio.k8s.resource import Resource
from tests.attacks.rig import BELOW, HOST, JCM, LIMIT, NGINX, ORG, VICTIM_AGE, WILDCARD, Rig
from tests.bad_inputs.world import secret
from tests.gateway.objects import made
from tests.support.kubernetes import ingress, path, rule, service, tls_secret

YOUNGER: Final = VICTIM_AGE + 5
OLDER: Final = VICTIM_AGE - 5

Objects = Callable[[Rig], Sequence[Resource]]
Check = Callable[[Rig], Awaitable[None]]


async def _nothing(_rig: Rig) -> None:
    """Check nothing beyond what is checked after every attack."""


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """What an attacker does once."""

    name: str
    objects: Objects = lambda _rig: ()
    check: Check = _nothing
    """Requests of the attacker, and what must come of them."""

    def __str__(self) -> str:
        return self.name


def _own(name: str, *rules: dict[str, Any], age: int = YOUNGER, **more: Any) -> Resource:
    found = rules or (rule(f"{name}.attacker.test", path("/", "web")),)
    return ingress(name, *found, namespace="attacker", age=age, **more)


def _annotated(name: str, prefix: str, **values: str) -> Resource:
    return _own(name, annotations={f"{prefix}{key.replace('_', '-')}": value for key, value in values.items()})


def _of_gateway(kind: str, name: str, **spec: Any) -> Resource:
    return made(kind, name, namespace="attacker", spec=spec)


def _gateway(name: str, *ports: int, protocol: str = "HTTP", **more: Any) -> Resource:
    listeners = [{"name": f"p{port}", "port": port, "protocol": protocol, **more} for port in ports]
    return _of_gateway("Gateway", name, gatewayClassName="haptic", listeners=listeners)


def _flags(_rig: Rig) -> Iterator[Resource]:
    """Values that an ACL would read as options; `-u` has crashed `haproxy -c`."""
    host = "canary.attacker.test"
    yield _own("main", rule(host, path("/", "web")))
    for number, flag in enumerate(("-u", "-i", "-n", "-M", "-f", "-f /etc/passwd", "--", "-m")):
        values = {"canary": "true", "canary-by-header": "X-C", "canary-by-header-value": flag}
        annotations = {f"{NGINX}{key}": value for key, value in values.items()}
        yield _own(f"canary-{number}", rule(host, path("/", "web")), annotations=annotations)
        for prefix, name in ((NGINX, "nginx"), (JCM, "jcm")):
            values = {"auth_tls_secret": "authority", "auth_tls_match_cn": f"CN={flag}"}
            if prefix == JCM:
                values = {"cors_enable": "true", "cors_allow_origin": flag}
            yield _annotated(f"{name}-{number}", prefix, **values)
        yield _annotated(f"org-{number}", ORG, deny_list=flag, allow_list=flag)
    yield secret("authority", {"ca.crt": "x"}, namespace="attacker")


NESTED: Final = ("(a+)+[0-9{}]", "(a|a)*[0-9{}]", "([a-z]+)*[A-Y{}]", "(.*)*(.*)*(.*)*[0-9{}]")
SLOW: Final = ("[a-z]*[a-y]*[0-9{}]", ".*(a?a?a?a?)[0-9{}]", "a*a*a*[0-9{}]", ".*.*[0-9{}]")


def _expressions(rig: Rig) -> Iterator[Resource]:
    """Sixteen matches by an expression each: those that are exponential, and those that are only slow."""
    yield _gateway("regex", rig.free)
    to = [{"name": "web", "port": 80}]
    for name, kinds in (("nested", NESTED), ("slow", SLOW)):
        patterns = [kinds[number % 4].format(number) for number in range(16)]
        headers = [{"headers": [{"name": "x", "type": "RegularExpression", "value": one}]} for one in patterns]
        paths = [{"path": {"type": "RegularExpression", "value": f"/{one}"}} for one in patterns]
        for field, matches in (("headers", headers), ("paths", paths)):
            rules = [{"matches": matches, "backendRefs": to}]
            yield _of_gateway("HTTPRoute", f"{name}-{field}", parentRefs=[{"name": "regex"}], rules=rules)
    yield _of_gateway("HTTPRoute", "plain", parentRefs=[{"name": "regex"}], rules=[{"backendRefs": to}])


async def _ask_expressions(rig: Rig) -> None:
    """Send the request that once stopped HAProxy: very many values of the header that all matches look at."""
    await rig.answers("free", "evil.test")
    for count, where in ((90, "/"), (1, "/" + "a" * 2_000), (90, "/" + "a" * 4_000)):
        values = "".join(f"x: {'a' * 40}\r\n" for _ in range(count))
        request = f"GET {where} HTTP/1.1\r\nHost: evil.test\r\n{values}Connection: close\r\n\r\n"
        await rig.send(request.encode(), port="free", within=10)


def _ports(rig: Rig) -> list[Resource]:
    """Ports of the controller, of agents, of frontends, of another process."""
    admin = int(rig.running.serving.addresses[0].rpartition(":")[2])
    taken = [admin, 5555, 9090, 8404, rig.ports["http"], rig.ports["https"], rig.taken]
    to = {"backendRefs": [{"name": "web", "port": 80}]}
    return [
        *(_gateway(f"port-{port}", port) for port in taken),
        *(_gateway(f"tcp-{port}", port, protocol="TCP") for port in (admin, rig.taken)),
        _of_gateway("HTTPRoute", "ports", parentRefs=[{"name": f"port-{port}"} for port in taken], rules=[to]),
    ]


def _certificates(rig: Rig) -> Iterator[Resource]:
    """Certificates with the victim's name, older and younger, named by Ingresses with and without its host."""
    own = rig.foreign
    for name, age in (("older", OLDER), ("younger", YOUNGER)):
        yield tls_secret(name, *rig.certificate(HOST, "*.victim.test", authority=own), namespace="attacker", age=age)
        yield _own(f"beside-{name}", age=age, tls=[{"hosts": [f"beside-{name}.attacker.test"], "secretName": name}])
        yield _own(f"same-{name}", rule(HOST, path("/x", "web")), tls=[{"hosts": [HOST], "secretName": name}])
        yield _own(f"alone-{name}", tls=[{"hosts": [HOST], "secretName": name}])
        yield _own(f"bare-{name}", tls=[{"secretName": name}])
        clients = {f"{NGINX}auth-tls-secret": "own-authority", f"{NGINX}auth-tls-verify-client": "optional"}
        tls = [{"hosts": [HOST], "secretName": name}]
        yield _own(f"clients-{name}", rule(HOST, path("/y", "web")), tls=tls, annotations=clients)
        passing = {f"{NGINX}ssl-passthrough": "true"}
        yield _own(f"passing-{name}", rule(HOST, path("/", "web")), annotations=passing)
    yield secret("own-authority", {"ca.crt": own.cert_pem.bytes()}, namespace="attacker")


async def _see_certificate(rig: Rig) -> None:
    """A handshake that takes the victim's authority alone, and asks for no certificate of the client."""
    answer = await rig.ask(HOST, port="https")
    assert answer.status == 200
    assert answer.body.startswith("victim\n")


def _below_wildcard(rig: Rig) -> Iterator[Resource]:
    """The victim's wildcard, and very many hosts below it, with certificates of each kind."""
    own = rig.certificate(WILDCARD, "*.victim.test", HOST, authority=rig.foreign)
    yield tls_secret("wild", *own, namespace="attacker")
    hosts = [f"h{number}.wild.victim.test" for number in range(600)]
    tls = [{"hosts": [*hosts, WILDCARD, "*.victim.test"], "secretName": "wild"}]
    yield _own("wild", *(rule(host, path("/", "web")) for host in (*hosts, WILDCARD, "*.victim.test")), tls=tls)
    yield _own("wild-alone", tls=tls)
    clients = {f"{NGINX}auth-tls-secret": "own-authority", f"{NGINX}force-ssl-redirect": "true"}
    yield _own("wild-clients", rule(WILDCARD, path("/y", "web")), tls=tls, annotations=clients)
    yield secret("own-authority", {"ca.crt": rig.foreign.cert_pem.bytes()}, namespace="attacker")


LOCATIONS: Final = ("%[src]", "%ci", "%%[env(HOME)]", "%0d%0aX-Injected: a", "/\r\nX-Injected: a", "/%", "/a", "$host")


def _redirects(rig: Rig) -> Iterator[Resource]:
    """Redirects to Locations that HAProxy could interpret, and of hosts of the victim."""
    names = [(NGINX, "permanent-redirect"), (NGINX, "temporal-redirect"), (NGINX, "app-root"), (JCM, "redirect-to")]
    names += [(JCM, "app-root"), (ORG, "request-redirect")]
    texts = [(prefix, name, f"{start}{text}") for prefix, name in names for text in LOCATIONS for start in ("", "/")]
    for number, (prefix, name, text) in enumerate(texts):
        yield _own(f"to-{number}", annotations={prefix + name: text})
    for number, host in enumerate((HOST, WILDCARD, "*.victim.test", f"www.{HOST}")):
        yield _own(f"from-{number}", annotations={f"{JCM}redirect-from": host})
        yield _own(f"www-{number}", rule(host, path("/x", "web")), annotations={f"{NGINX}from-to-www-redirect": "true"})
    filters: list[dict[str, Any]] = [{"hostname": text} for text in LOCATIONS] + [{"port": text} for text in LOCATIONS]
    for kind, field in (("ReplaceFullPath", "replaceFullPath"), ("ReplacePrefixMatch", "replacePrefixMatch")):
        filters += [{"path": {"type": kind, field: f"/{text}"}} for text in LOCATIONS]
    yield _gateway("redirects", rig.free)
    for number, redirect in enumerate(filters):
        rules = [{"filters": [{"type": "RequestRedirect", "requestRedirect": redirect}]}]
        name, parents = f"to-{number}", [{"name": "redirects"}]
        yield _of_gateway("HTTPRoute", name, parentRefs=parents, hostnames=[f"{name}.attacker.test"], rules=rules)


async def _see_certificate_below(rig: Rig) -> None:
    """Once the attacker has hosts below it, the others have the certificate of the victim's wildcard."""
    await rig.answers("http", "h599.wild.victim.test", b"attacker\n")
    answer = await rig.ask(BELOW, port="https")
    assert answer.body.startswith("victim\n")
    await _see_certificate(rig)


async def _see_locations(rig: Rig) -> None:
    """No answer has a header of data, an address or the environment; some are redirects, once they are taken in."""
    with trio.fail_after(LIMIT):
        while await rig.count_locations() <= 20:
            continue


def _paths(_rig: Rig) -> Iterator[Resource]:
    """The victim's own host and paths, by any way that an Ingress can claim them."""
    for kind in ("Exact", "Prefix", "ImplementationSpecific"):
        paths = [path(where, "web", kind=kind) for where in ("/", "/login", "/admin")]
        yield _own(f"path-{kind.lower()}", rule(HOST, *paths))
    yield _own(
        "canary", rule(HOST, path("/", "web")), annotations={f"{NGINX}canary": "true", f"{NGINX}canary-weight": "100"}
    )
    yield _own("any-host", rule(None, path("/", "web", kind="Exact"), path("/login", "web", kind="Exact")))
    yield _own("wildcard", rule("*.victim.test", path("/", "web")))
    yield _own("upper", rule(HOST.upper(), path("/login", "web", kind="Exact")))
    yield _annotated("alias", NGINX, server_alias=HOST)
    yield _annotated("alias-jcm", JCM, server_alias=HOST)
    yield _annotated("from", JCM, redirect_from=HOST, redirect_to="/")
    yield _own("www", rule(f"www.{HOST}", path("/", "web")), annotations={f"{NGINX}from-to-www-redirect": "true"})


async def _see_paths(rig: Rig) -> None:
    for where in ("/", "/login", "/login/", "/login/x", "/other"):
        answer = await rig.ask(HOST, where)
        assert answer.status == 200, where
        assert answer.body.startswith("victim\n"), where
    assert (await rig.ask(HOST, "/admin")).status == 403


def _canaries(_rig: Rig) -> Iterator[Resource]:
    """Pairs of Ingresses with very many paths, each of them a canary of the other."""
    paths = [path(f"/p{number}", "web") for number in range(500)]
    for number in range(3):
        host = f"big-{number}.attacker.test"
        canary = {f"{NGINX}canary": "true", f"{NGINX}canary-weight": "5"}
        yield _own(f"big-{number}", rule(host, *paths))
        yield _own(f"big-canary-{number}", rule(host, *paths), annotations=canary)


def _many_paths(_rig: Rig) -> Iterator[Resource]:
    """As many paths, hosts and routes as an API server would store."""
    yield _own("many", rule("many.attacker.test", *(path(f"/p{number}", "web") for number in range(5_000))))
    yield _own("hosts", *(rule(f"h{number}.attacker.test", path("/", "web")) for number in range(500)))
    annotations = {f"{NGINX}unknown-{number}": "x" for number in range(2_000)}
    yield _own("unknown", annotations=annotations)


def _agent_checks(rig: Rig) -> Iterator[Resource]:
    """Checks that connect to where an attacker wants, with a text of theirs."""
    values = {"agent-check-port": str(rig.taken), "agent-check-interval": "1s", "agent-check-send": "FLUSHALL\n"}
    for number, address in enumerate(("127.0.0.1", "localhost", "::1", "0.0.0.0", "127.1")):
        texts = {f"{JCM}{key}": value for key, value in values.items()} | {f"{JCM}agent-check-addr": address}
        yield _own(f"agent-{number}", annotations=texts)
    url = f"http://127.0.0.1:{rig.taken}/"
    yield _annotated("auth", NGINX, auth_url=url)
    yield _annotated("auth-jcm", JCM, auth_url=url)
    check = {"health-check-addr": "127.0.0.1", "health-check-port": str(rig.taken), "health-check-uri": "/"}
    yield _own("health", annotations={f"{JCM}{key}": value for key, value in check.items()})


async def _see_no_connection(rig: Rig) -> None:
    for name in ("auth", "auth-jcm", "health", "agent-0"):
        await rig.ask(f"{name}.attacker.test")
    assert rig.connections == 0


def _names(_rig: Rig) -> Iterator[Resource]:
    """Names that would be those of other sections, if they were put together without care."""
    for namespace, name in (
        ("victim-web", "80"),
        ("clients", "victim"),
        ("gateway", "victim-web-80"),
        ("tls", "victim"),
    ):
        yield service(name, namespace=namespace)
        yield service("web", namespace=namespace)
        yield ingress(name, rule(f"{name}.{namespace}.test", path("/", "web")), namespace=namespace, annotations={
            f"{NGINX}proxy-read-timeout": "5"})  # fmt: skip
        yield ingress(f"{name}-c", rule(f"c.{namespace}.test", path("/", "web")), namespace=namespace, annotations={
            f"{NGINX}auth-tls-secret": "authority"})  # fmt: skip


def _secrets(rig: Rig) -> Iterator[Resource]:
    """Secrets that no TLS library can read, or that do not fit."""
    chain, key = rig.certificate("a.attacker.test", authority=rig.foreign)
    other = rig.certificate("b.attacker.test", authority=rig.foreign)[1]
    pairs = {
        "garbage": (b"garbage", b"garbage"),
        "empty": (b"", b""),
        "mixed": (chain, other),
        "cut": (chain[: len(chain) // 2], key),
        "key-only": (key, key),
        "huge": (b"-----BEGIN CERTIFICATE-----\n" + b"A" * 900_000 + b"\n-----END CERTIFICATE-----\n", key),
        "lines": (chain + b"\nbind :99\n", key + b"\nssl/x.pem *\n"),
        "many": (chain * 200, key),
        "zero": (b"\0" + chain, key),
    }
    for name, pair in pairs.items():
        yield tls_secret(name, *pair, namespace="attacker")
        yield _own(f"tls-{name}", tls=[{"hosts": [f"tls-{name}.attacker.test"], "secretName": name}])
    encoded = base64.b64encode(b"x" * 100).decode()
    broken = tls_secret("not-base64", *pairs["mixed"], namespace="attacker")
    broken["data"]["tls.crt"] = f"*{encoded}"
    yield broken
    yield _own("tls-not-base64", tls=[{"secretName": "not-base64"}])
    yield secret("users", {"auth": b"\xff\xfe:x\njoe:y\n    bind :99"}, namespace="attacker")
    yield _annotated("users", NGINX, auth_type="basic", auth_secret="users")


def _routes(rig: Rig) -> Iterator[Resource]:
    """Routes and listeners that want the victim's Gateway, host and backends."""
    to = [{"name": "web", "port": 80}]
    theirs = [{"name": "web", "namespace": "victim", "port": 80}]
    parents = [{"name": "gw", "namespace": "victim"}]
    for number, backends in enumerate((to, theirs)):
        yield _of_gateway(
            "HTTPRoute", f"taken-{number}", parentRefs=parents, hostnames=[HOST], rules=[{"backendRefs": backends}]
        )
        yield _of_gateway(
            "GRPCRoute", f"grpc-{number}", parentRefs=parents, hostnames=[HOST], rules=[{"backendRefs": backends}]
        )
        yield _of_gateway("TCPRoute", f"tcp-{number}", parentRefs=parents, rules=[{"backendRefs": backends}])
    listener = {"name": "set", "port": rig.ports["gateway"], "protocol": "HTTP", "hostname": HOST}
    yield _of_gateway("ListenerSet", "set", parentRef=parents[0], listeners=[listener])
    yield _gateway("same-port", rig.ports["gateway"])
    yield _gateway("same-host", rig.ports["gateway"], hostname=HOST)
    yield _of_gateway(
        "HTTPRoute", "same", parentRefs=[{"name": "same-port"}, {"name": "same-host"}], rules=[{"backendRefs": to}]
    )


SPELLINGS: Final = (
    "//admin", "/./admin", "/x/../admin", "/x/%2e%2e/admin", "/%61dmin", "/%2e/admin", "/admin/", "/admin/.",
    "/admin/x", "/x/..//admin", "///admin", "/%61%64%6d%69%6e", "/admin/../admin", "/.//admin", "/x/./../admin",
    "/admin//",
)  # fmt: skip


async def _spell_paths(rig: Rig) -> None:
    """No spelling of a path that has an access rule comes to the application."""
    for where in ("/admin", *SPELLINGS):
        answer = await rig.ask(HOST, where)
        assert answer.status in (400, 403, 404), (where, answer.status, answer.body[:200])


async def _connect(rig: Rig) -> None:
    """CONNECT makes no tunnel, whatever it names."""
    for target in (f"{HOST}:443", "127.0.0.1:80", f"{HOST}:80"):
        inner = f"GET /admin HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n{inner}"
        answer = await rig.send(request.encode(), within=5)
        assert answer.startswith((b"HTTP/1.1 405", b"HTTP/1.1 400")), (target, answer[:200])
        assert b"victim\n" not in answer, target


FORGED: Final = (
    *("X-Real-IP", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Scheme", "X-Scheme"),
    *("X-Forwarded-Port", "Forwarded", "X-Original-Forwarded-For", "Proxy", "SSL-Client-Verify", "X-SSL-Client-CN"),
)


async def _forge(rig: Rig) -> None:
    """What applications trust is never what a client has written."""
    forged = dict.fromkeys(FORGED, "10.9.9.9")
    answer = await rig.ask(HOST, "/login", headers=forged)
    assert answer.status == 200
    assert "10.9.9.9" not in answer.body, answer.body
    headers = {"Connection": "X-Forwarded-For, X-Real-IP, X-Forwarded-Proto"}
    request = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    raw = await rig.send(f"GET /login HTTP/1.1\r\nHost: {HOST}\r\n{request}\r\n".encode(), within=2)
    assert b"x-forwarded-for: 127.0.0.1" in raw, raw
    assert b"connection: x-" not in raw.lower(), raw


async def _flood(rig: Rig) -> None:
    """Very many headers, values, cookies and parameters, and lines that never end."""
    many = "".join(f"x-{number}: {'v' * 50}\r\n" for number in range(90))
    same = "".join("cookie: a=b; c=d\r\n" for _ in range(90))
    for head in (f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{many}", f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{same}"):
        await rig.send(f"{head}Connection: close\r\n\r\n".encode(), within=5)
    await rig.send(f"GET /?{'a=b&' * 3_000} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode(), within=5)
    await rig.send(b"GET /" + b"a" * 200_000, within=1)


ATTACKS: Final = (
    Attack(name="flags", objects=lambda rig: list(_flags(rig))),
    Attack(name="expressions", objects=lambda rig: list(_expressions(rig)), check=_ask_expressions),
    Attack(name="ports", objects=_ports),
    Attack(name="certificates", objects=lambda rig: list(_certificates(rig)), check=_see_certificate),
    Attack(name="hosts below a wildcard", objects=lambda rig: list(_below_wildcard(rig)), check=_see_certificate_below),
    Attack(name="redirects", objects=lambda rig: list(_redirects(rig)), check=_see_locations),
    Attack(name="paths", objects=lambda rig: list(_paths(rig)), check=_see_paths),
    Attack(name="canaries", objects=lambda rig: list(_canaries(rig))),
    Attack(name="many paths", objects=lambda rig: list(_many_paths(rig))),
    Attack(name="agent checks", objects=lambda rig: list(_agent_checks(rig)), check=_see_no_connection),
    Attack(name="names of sections", objects=lambda rig: list(_names(rig))),
    Attack(name="secrets", objects=lambda rig: list(_secrets(rig)), check=_see_certificate),
    Attack(name="routes", objects=lambda rig: list(_routes(rig))),
    Attack(name="spellings of paths", check=_spell_paths),
    Attack(name="CONNECT", check=_connect),
    Attack(name="forged headers", check=_forge),
    Attack(name="floods of headers", check=_flood),
)
