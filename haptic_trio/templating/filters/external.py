"""Filters for external authentication servers: their address, and what is sent to them.

The author of an annotation decides what HAProxy connects to, so a
server is either a Service of its own namespace, or a host that the
administrator has listed. What the filters `auth_*` return as `Emitted` is one
field of a map's value, without `,`, `|` or blanks: see `ingress-auth.lua`.
Other values raise `EmitError`.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from haptic_trio.templating.filters.emit import EmitError, describe_chars, number_text
from haptic_trio.templating.filters.emitters import address, header_token, hostname, integer, pattern, port, word
from haptic_trio.templating.filters.values import network
from haptic_trio.templating.values.text import FORBIDDEN, Emitted

_URL: Final = re.compile(
    r"(?P<scheme>https?|svc|service)://(?P<place>[^/?#]*)(?P<path>(?:/[^?#]*)?)(?P<query>(?:\?[^#]*)?)"
).fullmatch
_TEMPLATE: Final = re.compile(r"[A-Za-z0-9._~:/?@!&()*+,;=%\[\]$-]*").fullmatch
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_VARIABLE: Final = re.compile(r"\$\{?(\w*)\}?")
_KEPT: Final = re.compile(r"[A-Za-z0-9._~-]")
_OF_REQUESTS: Final[Mapping[str, str]] = {
    "host": "$host",
    "http_host": "$host",
    "best_http_host": "$host",
    "scheme": "$scheme",
    "pass_access_scheme": "$scheme",
    "request_uri": "$uri",
    "escaped_request_uri": "$escaped",
}
"""Variables of nginx for parts of the request, with their names here."""
_IN_PATHS: Final = frozenset({"$host", "$scheme", "$escaped"})
"""Variables that cannot add a parameter to a query."""
_PRINTABLE: Final = re.compile(r"[ -~]{0,255}").fullmatch
_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "POST", "PUT"})
_MILLISECONDS: Final = {"ms": 1, "s": 1_000, "m": 60_000}
_DEFAULT_PORT: Final = {"http": 80, "https": 443}


class AuthTarget(NamedTuple):
    """A server that is asked whether a request may go on."""

    scheme: str
    """`http` or `https`."""
    host: Emitted
    """A field: what it is asked as, with the port."""
    path: Emitted
    """A field: path and query."""
    service: str
    """The Service of the Ingress's or a listed namespace; empty where it is another host. Still data."""
    namespace: str
    port: int
    address: Emitted
    """`address:port` where the URL names one; empty where the host has to be looked up, or is a Service."""


def encoded(value: Any) -> Emitted:
    """A field that stands for *value*: what is not a letter, a digit or one of `. _ ~ -` becomes `%` and two digits."""
    text = _text(value, "encoded")
    if FORBIDDEN.search(text):
        raise EmitError(f"encoded: the value contains {describe_chars(text, FORBIDDEN)}")
    return Emitted(_encoded(text))


def auth_target(
    value: Any, namespace: Any, allowed_hosts: Any = (), cluster_domain: Any = "cluster.local"
) -> AuthTarget:
    """The server that the URL *value* of an Ingress in *namespace* means.

    `http://SERVICE.NAMESPACE.svc…` and `svc://[NAMESPACE/]SERVICE:PORT` are Services; one of another namespace, and
    any other host, has to be among *allowed_hosts*.
    """
    text = _text(value, "auth_target")
    match = _URL(text)
    if match is None:
        raise EmitError("auth_target: the value is not a URL", "http://SERVICE.NAMESPACE.svc:PORT/PATH, or svc://…")
    allowed = {str(host).lower() for host in (allowed_hosts if isinstance(allowed_hosts, Iterable) else ())}
    is_service = match["scheme"] in {"svc", "service"}
    scheme = "http" if is_service else match["scheme"]
    path = match["path"]
    place = match["place"]
    named = re.match(r"/[^/:?]+:[0-9]+", path) if is_service and ":" not in place else None
    if named:
        place, path = place + named[0], path[named.end() :]
    host, number = _split_port(place)
    if is_service and not number:
        raise EmitError("auth_target: a URL with svc:// must have a port")
    used = int(port(number)) if number else _DEFAULT_PORT[scheme]
    found = _service_in(host, str(namespace), str(cluster_domain), is_service)
    full = Emitted(_encoded(_host_header(host, found, used, scheme)))
    asked = Emitted(_template((path or "/") + match["query"], _IN_PATHS))
    if found is None:
        address = _listed_address(host, allowed)
        return AuthTarget(scheme, full, asked, "", "", used, Emitted(f"{address}:{used}" if address else ""))
    name, place_of = found
    spellings = {f"{name}.{place_of}.svc", f"{name}.{place_of}.svc.{cluster_domain}"}
    if place_of != str(namespace) and not spellings & allowed:
        raise EmitError(
            "auth_target: the Service is in another namespace",
            f"an administrator can list {name}.{place_of}.svc in externalAuthHosts",
        )
    return AuthTarget(scheme, full, asked, name, place_of, used, Emitted(""))


def auth_signin(value: Any, parameter: Any = "") -> Emitted:
    """A field that is where clients are sent to sign in.

    Of nginx's variables it knows those about host, scheme and URL. With *parameter* the URL of the request is
    added under that name, unless it is there.
    """
    text = _text(value, "auth_signin")
    if not re.match(r"https?://[A-Za-z0-9.\[\]:$_{}-]+(?:[/?]|\Z)|/(?!/)", text) or "#" in text:
        raise EmitError("auth_signin: the value is neither an http(s) URL nor a path")
    name = str(parameter)
    if name:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            error = EmitError(
                "auth_signin: the parameter's name contains characters other than letters, digits, _, . and -"
            )
            error.value = name
            raise error
        if not re.search(rf"[?&]{re.escape(name)}=", text):
            joint = "&" if "?" in text else "?"
            text += f"{joint}{name}=$pass_access_scheme://$http_host$escaped_request_uri"
    return Emitted(_template(text, frozenset(_OF_REQUESTS.values())))


def auth_headers(value: Any) -> Emitted:
    """A field that is a list of header names, separated by commas in *value*; each may end in `*`."""
    names = [item.strip().lower() for item in str(value).split(",") if item.strip()]
    for item in names:
        if item not in {"*", "-"} and "*" in header_token(item, "auth_headers")[:-1]:
            raise EmitError("auth_headers: a name contains '*' before its end")
    # A field may not be empty, and no header is called so.
    return Emitted("|".join("*" if item == "*" else _encoded(item[:-1]) + "*" if item[-1] == "*" else _encoded(item)
                            for item in names) or "-")  # fmt: skip


def auth_method(value: Any) -> Emitted:
    """A field that is a method, or `*` for that of the request."""
    text = _text(value, "auth_method").upper()
    if text != "*" and text not in _METHODS:
        raise EmitError(f"auth_method: the value is not one of {', '.join(sorted(_METHODS))}")
    return Emitted(text)


def auth_limit(value: Any) -> Emitted:
    """A field that is a time in milliseconds; 100 ms to ten minutes."""
    parts = re.findall(r"([0-9]{1,9})(ms|s|m)", str(value))
    if not parts or "".join(map("".join, parts)) != str(value):
        raise EmitError("auth_limit: the value is not a duration", "a number and one of ms, s, m")
    return integer(sum(int(number) * _MILLISECONDS[unit] for number, unit in parts), 100, 600_000)


def common_name(value: Any) -> Emitted:
    """A pattern, behind `--`, that is the name in `CN=NAME`; regular expressions are rejected."""
    match = re.fullmatch(r"\^?CN=([A-Za-z0-9 ._@-]{1,64})\$?", _text(value, "common_name"))
    if match is None:
        raise EmitError("common_name: the value is not CN= and a name", "regular expressions are not supported")
    return pattern(match[1])


def agent_address(value: Any, allowed: Any = ()) -> Emitted:
    """The IP address that agent checks connect to instead of each endpoint's own; one of the networks *allowed*."""
    text = address(value)
    networks = [network(entry) for entry in (allowed if isinstance(allowed, Iterable) else ())]
    if not any(_is_within(text, entry) for entry in networks):
        raise EmitError(
            "agent_address: agent checks must not connect to this address",
            "omit it to check each endpoint itself; an administrator can list others in agentCheckAddresses",
        )
    return text


def agent_send(value: Any) -> Emitted:
    r"""The text of an agent check: at most 255 printable ASCII characters; `\n` at the end is the end of a line."""
    text = str(value) if isinstance(value, str) else number_text(value, "agent_send")
    line = text.removesuffix("\\n")
    if not _PRINTABLE(line) or not text:
        raise EmitError("agent_send: the value is not 1 to 255 printable ASCII characters")
    # The end of a line can only be written in weak quotes.
    end = '"\\n"' if line != text else ""
    return Emitted((word(line) if line else "") + end)


def external_name(value: Any, allowed: Any = ()) -> Emitted:
    """The name of a Service of type ExternalName, if the list *allowed* has it; else empty.

    An entry `*.example.com` stands for every name below `example.com`.
    """
    text = value.lower().removesuffix(".") if isinstance(value, str) else ""
    try:
        found = hostname(text)
    except EmitError:
        return Emitted("")
    # No name of the DNS ends in a number, but addresses do.
    if "*" in found or found.rpartition(".")[2].isdecimal():
        return Emitted("")
    entries = [str(entry).lower().removesuffix(".") for entry in allowed]
    is_listed = any(found == entry or (entry.startswith("*.") and found.endswith(entry[1:])) for entry in entries)
    return found if is_listed else Emitted("")


def _is_within(text: str, entry: str) -> bool:
    parsed = ipaddress.ip_network(entry, strict=False)
    return ipaddress.ip_address(text) in parsed


def _split_port(place: str) -> tuple[str, str]:
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@]+)(?::([0-9]{1,5}))?", place)
    if match is None:
        raise EmitError("auth_target: the URL has no host, or a user name in front of it")
    if "$" in match[1]:
        raise EmitError(
            "auth_target: the host of the URL is a variable, which clients could choose",
            "name the Service: http://SERVICE.NAMESPACE.svc:PORT/PATH",
        )
    return match[1], match[2] or ""


def _service_in(host: str, namespace: str, domain: str, is_service: bool) -> tuple[str, str] | None:
    """Return name and namespace of the Service that *host* means."""
    if is_service:
        before, slash, name = host.rpartition("/")
        place = before if slash else namespace
    else:
        labels = host.lower().rstrip(".").removesuffix("." + domain.lower()).split(".")
        if len(labels) != 3 or labels[2] != "svc":
            return None
        name, place = labels[:2]
    for label in (name, place):
        if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", label):
            raise EmitError("auth_target: the value names no Service")
    return name, place


def _host_header(host: str, found: tuple[str, str] | None, used: int, scheme: str) -> str:
    name = f"{found[0]}.{found[1]}.svc" if found and "." not in host else host.lower()
    return name if used == _DEFAULT_PORT[scheme] else f"{name}:{used}"


def _listed_address(host: str, allowed: set[str]) -> str:
    """Return the address that *host* is, empty for a name; raise if the administrator has not listed it."""
    name = host.lower().rstrip(".")
    if name not in allowed and name.strip("[]") not in allowed:
        raise EmitError(
            "auth_target: the host is not a Service of the Ingress's namespace",
            "http://SERVICE.NAMESPACE.svc:PORT/PATH; an administrator can list other hosts in externalAuthHosts",
        )
    try:
        parsed = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        hostname(name)
        return ""
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)


def _template(text: str, known: frozenset[str]) -> str:
    if not _TEMPLATE(text.replace("${", "$").replace("}", "")) or _STRAY_PERCENT.search(text):
        raise EmitError("auth: the URL holds characters that have to be percent-encoded")
    return "|".join(_pieces(text, known))


def _pieces(text: str, known: frozenset[str]) -> Iterator[str]:
    position = 0
    for match in _VARIABLE.finditer(text):
        if match.start() > position:
            yield _encoded(text[position : match.start()])
        variable = _OF_REQUESTS.get(match[1], "")
        if variable not in known:
            raise EmitError(
                "auth: the URL holds an unknown variable",
                ", ".join(f"${name}" for name, meant in _OF_REQUESTS.items() if meant in known),
            )
        yield variable
        position = match.end()
    if position < len(text):
        yield _encoded(text[position:])


def _encoded(text: str) -> str:
    return "".join(c if _KEPT.match(c) else "".join(f"%{byte:02X}" for byte in c.encode()) for c in text)


def _text(value: Any, name: str) -> str:
    text = (str(value) if isinstance(value, str) else number_text(value, name)).strip()
    if not text:
        raise EmitError(f"{name}: the value is empty")
    return text


EXTERNAL: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function
    for function in (
        *(encoded, auth_target, auth_signin, auth_headers, auth_limit, auth_method, common_name),
        *(agent_address, agent_send, external_name),
    )
}
