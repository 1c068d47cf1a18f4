"""Fetch request of a template: URL and options, checked, with secrets kept out of messages."""

import base64
import binascii
import fnmatch
import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from haptic_trio.httpstore.addresses import Network
from haptic_trio.templating.values.faults import TemplateFaultError, did_you_mean

TIMEOUT: Final = 5.0
"""Seconds that a fetch may take as a whole where the template does not say it."""
RETRIES: Final = 2
MOST_RETRIES: Final = 10
LONGEST_URL: Final = 2_048

_OPTIONS: Final = ("interval", "timeout", "retries", "critical", "empty", "auth", "headers", "ca")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}").fullmatch
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e]")
_NOT_IN_URLS: Final = re.compile(r"[^\x21-\x7e]|[\"<>\\^`{|}]")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}").fullmatch
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+").fullmatch
_PART: Final = re.compile(r"([0-9.]+)(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_RESERVED: Final = frozenset({
    "accept-encoding", "connection", "content-length", "expect", "host", "if-modified-since", "if-none-match", "range",
    "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
# Keys differ for requests with different credentials, and must not reveal the credentials.
_PEPPER: Final = secrets.token_bytes(16)

FindSecret = Callable[[str, str], Mapping[str, Any] | None]
"""Return the Secret of a namespace and name."""


class RequestFaultError(TemplateFaultError):
    """`http.fetch` was called with something that it cannot do; trying again helps after that has changed."""


class FetchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the configuration for fetches of templates."""

    allowed_hosts: tuple[str, ...] = ()
    """Names or patterns such as `*.example.com`; empty: any."""
    allowed_networks: tuple[Network, ...] = ()
    """Addresses that would be forbidden otherwise, such as those of this machine."""
    max_bytes: int = 1 << 20
    max_timeout: float = 30.0
    min_interval: float = 1.0
    max_contents: int = 100
    max_concurrent: int = 8

    def allows(self, host: str) -> bool:
        """Whether something may be fetched from *host*, whatever its address is."""
        name = host.lower().rstrip(".")
        return not self.allowed_hosts or any(
            fnmatch.fnmatchcase(name, pattern.lower()) for pattern in self.allowed_hosts
        )


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A fetch; equal ones have the same `key`. Only `label` is for people."""

    key: str
    label: str
    """The URL without its query, and without its path if that may derive from a Secret."""
    url: str
    interval: float = 0.0
    """Seconds between two fetches; 0: it is fetched once."""
    timeout: float = TIMEOUT
    """Seconds for the whole fetch: all redirects, all retries."""
    retries: int = RETRIES
    critical: bool = False
    """Without the content, the template that asks for it fails."""
    may_be_empty: bool = True
    """A blank content counts; otherwise the fetch has failed."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent to this origin alone; credentials are among them."""
    ca: str = ""
    """PEM: the certificates that are trusted, instead of those of the system."""

    def __repr__(self) -> str:
        return f"FetchRequest({self.label})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("label", self.label)]


def make_request(
    url: Any, options: Mapping[str, Any], policy: FetchPolicy, find_secret: FindSecret, *, is_secret: bool = False
) -> FetchRequest:
    """Return the request that a template means; raises `RequestFaultError`.

    *is_secret*: the URL may derive from a Secret, so its path is not shown.
    """
    for name in options:
        if name not in _OPTIONS:
            raise RequestFaultError(f"http.fetch has no option {name!r}", did_you_mean(str(name), _OPTIONS))
    parts = split_url(_text(url, "the URL"))
    label = _secret_label_of(parts) if is_secret else label_of(parts)
    if not policy.allows(parts.hostname or ""):
        raise RequestFaultError(
            f"nothing may be fetched from {parts.hostname!r}", "the configuration names who may: `http.allowedHosts`"
        )
    headers = _headers_of(options.get("headers"))
    if authorization := _authorization(options.get("auth"), find_secret):
        headers["authorization"] = authorization
    interval = _seconds(options.get("interval") or 0, "interval")
    if 0 < interval < policy.min_interval:
        raise RequestFaultError(
            f"the interval is shorter than {policy.min_interval:g} s", "`http.minInterval` says how short it may be"
        )
    timeout = _seconds(options.get("timeout", TIMEOUT), "timeout")
    if not 0 < timeout <= policy.max_timeout:
        raise RequestFaultError(
            f"the timeout is not between 0 and {policy.max_timeout:g} s", "`http.maxTimeout` is the longest"
        )
    request = FetchRequest(
        key="",
        label=label,
        url=parts._replace(fragment="").geturl(),
        interval=interval,
        timeout=timeout,
        retries=_retries(options.get("retries", RETRIES)),
        critical=_truth(options.get("critical", False), "critical"),
        may_be_empty=_truth(options.get("empty", True), "empty"),
        headers=tuple(sorted(headers.items())),
        ca=_certificates(options.get("ca")),
    )
    return msgspec.structs.replace(request, key=_key_of(request))


def split_url(url: str) -> SplitResult:
    """Return the parts of *url*; raises `RequestFaultError` without the URL in its message if it is not an HTTP URL."""
    if len(url) > LONGEST_URL:
        raise RequestFaultError(f"the URL is longer than {LONGEST_URL} characters")
    if _NOT_IN_URLS.search(url):
        raise RequestFaultError("the URL holds a character that URLs cannot have", "encode it: `| urlencode`")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise RequestFaultError("the URL cannot be read", "such as `https://lists.example.com/deny.txt`") from None
    if parts.scheme not in ("http", "https"):
        raise RequestFaultError("the URL is neither `http://…` nor `https://…`")
    if "@" in parts.netloc:
        raise RequestFaultError("the URL holds credentials, which would be seen", "give them with the option `auth`")
    if _HOST(host) is None or port == 0:
        raise RequestFaultError("the URL names no host", "host names in punycode: `xn--…`")
    return parts


def label_of(parts: SplitResult) -> str:
    """Return the part of a URL that may be shown, without the query, which may contain tokens."""
    return f"{parts.scheme}://{parts.netloc}{parts.path or '/'}{'?…' if parts.query else ''}"


def _secret_label_of(parts: SplitResult) -> str:
    """Return the part of a URL with a secret path that may be shown, and what identifies it within this process."""
    path = hashlib.blake2b(f"{parts.path}?{parts.query}".encode(), key=_PEPPER, digest_size=4).hexdigest()
    return f"{parts.scheme}://{parts.netloc}/… (digest {path})"


def _key_of(request: FetchRequest) -> str:
    # Two labels of a request do not make two contents.
    fields = [getattr(request, field) for field in request.__struct_fields__ if field not in ("key", "label")]
    content = msgspec.json.encode(fields)
    return hashlib.blake2b(content, key=_PEPPER, digest_size=12).hexdigest()


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise RequestFaultError(f"{what} is not text")
    return str.__str__(value)


def _seconds(value: Any, option: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e8:
        return float(value)
    if isinstance(value, str) and len(value) < 50 and _DURATION(value):
        try:
            return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
        except ValueError:
            pass
    raise RequestFaultError(f"the {option} is not a valid duration", "such as `5m`, or a number of seconds")


def _retries(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_RETRIES:
        raise RequestFaultError(f"`retries` is not a number from 0 to {MOST_RETRIES}")
    return int(value)


def _truth(value: Any, option: str) -> bool:
    if not isinstance(value, bool):
        raise RequestFaultError(f"`{option}` is neither true nor false")
    return value


def _headers_of(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise RequestFaultError("`headers` is not a mapping", "such as {'accept': 'text/plain'}")
    headers: dict[str, str] = {}
    for name, value in given.items():
        if not isinstance(name, str) or _TOKEN(name) is None:
            raise RequestFaultError("`headers` has a name that no header can have")
        lower = name.lower()
        if lower in _RESERVED:
            raise RequestFaultError(f"the header {lower!r} is reserved: templates cannot set it")
        headers[lower] = _header_value(value, f"the header {lower!r}")
    return headers


def _header_value(value: Any, what: str) -> str:
    text = str.__str__(value) if isinstance(value, str) else None
    if text is None or _UNPRINTABLE.search(text) or text != text.strip() or len(text) > 8_192:
        raise RequestFaultError(f"{what} is not a valid header value", "printable ASCII, no blanks at its ends")
    return text


def _authorization(auth: Any, find_secret: FindSecret) -> str:
    """Return the value of the header; errors say nothing of what they are about."""
    if auth is None:
        return ""
    if not isinstance(auth, Mapping):
        raise RequestFaultError(
            "`auth` is not a mapping", "{'token': …}, {'username': …, 'password': …} or {'secret': 'namespace/name'}"
        )
    if "secret" in auth:
        if len(auth) > 1:
            raise RequestFaultError("`auth` has `secret`, and something beside it")
        auth = _from_secret(auth["secret"], find_secret)
    match sorted(map(str, auth)):
        case ["token"]:
            return f"Bearer {_header_value(auth['token'], 'the token')}"
        case ["password", "username"]:
            username, password = (_text(auth[field], f"the {field}") for field in ("username", "password"))
            if ":" in username:
                raise RequestFaultError("the username holds a colon, and must not")
            return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"
    raise RequestFaultError("`auth` is neither `token`, nor `username` and `password`, nor `secret`")


def _from_secret(named: Any, find_secret: FindSecret) -> dict[str, str]:
    secret = named
    if isinstance(named, str):
        namespace, slash, name = str.__str__(named).partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise RequestFaultError("`auth` names no Secret", "write `namespace/name`")
        secret = find_secret(namespace, name)
    if secret is None:
        raise RequestFaultError("the Secret with the credentials is not there")
    data = secret.get("data") if isinstance(secret, Mapping) else None
    found = {field: _decoded(data, field) for field in ("token", "username", "password")} if data else {}
    given = {field: value for field, value in found.items() if value}
    if sorted(given) not in (["token"], ["password", "username"]):
        raise RequestFaultError("the Secret has neither `token`, nor `username` and `password`")
    return given


def _decoded(data: Any, field: str) -> str:
    try:
        return base64.b64decode(str(data.get(field) or ""), validate=True).decode().strip("\r\n")
    # The cause would carry the value.
    except (AttributeError, binascii.Error, ValueError):
        raise RequestFaultError(f"`{field}` of the Secret is not text in base64") from None


def _certificates(value: Any) -> str:
    if value is None:
        return ""
    text = _text(value, "`ca`")
    if "-----BEGIN CERTIFICATE-----" not in text or not text.isascii():
        raise RequestFaultError("`ca` is not a certificate in PEM form")
    return text
