"""Fields of the Data Plane API contract for the words of `add server`."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.haproxy.config.servers import read_address
from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.haproxy.grammar.options import walk_options
from haptic_trio.haproxy.plan.commands import UnsendableError
from haptic_trio.haproxy.plan.operations import AddServer


class _Form(Enum):
    SWITCH = "a word that switches something on"
    OFF = "a word that switches something off"
    NUMBER = "a number"
    WORD = "a word"
    FILE = "a file"


class _Field(NamedTuple):
    name: str
    form: _Form


def _fields(form: _Form, *names: str, **others: str) -> dict[str, _Field]:
    same = {name.replace("_", "-"): _Field(name, form) for name in names}
    return {**same, **{word.replace("_", "-"): _Field(name, form) for word, name in others.items()}}


# Not health checks: the API cannot start them, and a server without running checks is never marked down.
_FIELDS: Final[Mapping[str, _Field]] = {
    **_fields(_Form.SWITCH, "backup", "send_proxy_v2_ssl", "send_proxy_v2_ssl_cn", "ssl", "tfo"),
    **_fields(_Form.SWITCH, "no_sslv3", "no_tlsv10", "no_tlsv11", "no_tlsv12", "no_tlsv13"),
    **_fields(_Form.SWITCH, send_proxy="send-proxy", send_proxy_v2="send-proxy-v2"),
    **_fields(_Form.OFF, no_ssl_reuse="ssl_reuse", no_tls_tickets="tls_tickets"),
    **_fields(_Form.NUMBER, "maxconn", "maxqueue", "minconn", "pool_low_conn", "pool_max_conn", "weight"),
    **_fields(_Form.WORD, "alpn", "ciphers", "ciphersuites", "proto", "sni"),
    **_fields(_Form.WORD, "ssl_max_ver", "ssl_min_ver", "verify", "verifyhost", "ws"),
    **_fields(_Form.FILE, "crl_file", ca_file="ssl_cafile", crt="ssl_certificate"),
}
OPTIONS: Final = frozenset(_FIELDS)
"""Options of a `server` line that the API has a field for and passes on unchanged."""


def server_fields(operation: AddServer, paths: Paths) -> dict[str, str | int]:
    """Return the fields of the API for *operation*; raises UnsendableError for options without a field."""
    address = read_address(operation.address)
    if address is None:
        raise UnsendableError(f"'{operation.address}' is not a plain address with a port")
    fields: dict[str, str | int] = {"name": operation.server, "address": address[0], "port": address[1]}
    end = 0
    for option in walk_options(operation.options, 0, shipped_keywords().server):
        field = _FIELDS.get(option.name)
        if field is None:
            raise UnsendableError(f"the Data Plane API has no field for the server option '{option.name}'")
        fields[field.name] = _value(field, " ".join(option.values), paths)
        end = option.at + 1 + len(option.values)
    if end != len(operation.options):
        raise UnsendableError(f"unknown server option '{operation.options[end]}'")
    return fields


def _value(field: _Field, word: str, paths: Paths) -> str | int:
    match field.form:
        case _Form.SWITCH:
            return "enabled"
        case _Form.OFF:
            return "disabled"
        case _Form.NUMBER:
            if not word.isdecimal():
                raise UnsendableError(f"'{word}' is not a number")
            return int(word)
        case _Form.FILE:
            return paths.of(word)
        case _Form.WORD:
            return word
