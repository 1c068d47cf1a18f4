"""State of the in-process Data Plane API: a configuration, stored files, and a process that has loaded them."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cryptography import x509

from haptic_trio.haproxy.config.maps import parse_map_file

ROOT = "/etc/haproxy-test"
DIRECTORIES = {"maps": "maps", "ssl_certificates": "ssl", "ssl_crt_lists": "ssl", "general": "general"}
DESCRIPTIONS = {
    "maps": "managed map file",
    "ssl_certificates": "managed SSL file",
    "ssl_crt_lists": "managed certificate list",
    "general": "managed general use file",
}
BALANCES = {"roundrobin", "static-rr", "leastconn", "source", "uri", "first", "random", "hash"}
BALANCE_REJECTION = (
    "balance only supports 'roundrobin', 'static-rr', 'leastconn', 'source', 'uri', "
    "'url_param', 'hdr(name)' and 'rdp-cookie(name)' options."
)
SORTED_KINDS = ("frontend", "backend")
KINDS = ("global", "defaults", "userlist", "resolvers", "frontend", "listen", "backend")


class RejectedError(Exception):
    """A request that the API answers with a status other than success."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


@dataclass
class Process:
    """What a loaded HAProxy has: servers by backend and name, entries by map; the rest by the path of its file."""

    servers: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    maps: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    certificates: dict[str, bytes] = field(default_factory=dict)
    crt_lists: dict[str, list[str]] = field(default_factory=dict)
    """Lines of entries."""
    backends: list[str] = field(default_factory=list)
    busy: set[tuple[str, str]] = field(default_factory=set)
    """Servers that connections use."""
    text: str = ""


def split_sections(text: str) -> Iterator[list[str]]:
    """Yield the sections of a configuration as their lines, without comments and blank lines."""
    section: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] in KINDS and section:
            yield section
            section = []
        section.append(" ".join(words) if words[0] in KINDS else "  " + line.strip())
    if section:
        yield section


def rewrite(text: str) -> str:
    """Return the configuration in the order in which the API keeps it."""
    sections = list(split_sections(text))

    def rank(section: list[str]) -> tuple[int, str]:
        kind, *name = section[0].split()
        return KINDS.index(kind), name[0] if kind in SORTED_KINDS else ""

    ordered = []
    for section in sorted(sections, key=rank):
        logs = [line for line in section if line.startswith("  log ")] if section[0] == "global" else []
        ordered.append("\n".join([line for line in section if line not in logs] + logs))
    return "\n\n".join(ordered) + "\n"


def with_header(text: str, version: int) -> str:
    """Return *text* under the comments that the API writes before it."""
    return f"# _md5hash={checksum(text)}\n# _version={version}\n\n{text}"


def checksum(text: str) -> str:
    """Return a checksum in the form of the API's."""
    return hashlib.md5(text.encode(errors="surrogateescape")).hexdigest()


def find_faults(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and message of the few faults that this HAProxy knows."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words[:1] == ["mode"] and words[1] not in {"http", "tcp", "log"}:
            yield number, f"unknown proxy mode '{words[1]}'."
        if words[:1] == ["balance"] and words[1] not in BALANCES:
            yield number, BALANCE_REJECTION


def reject_faults(text: str, place: str, prefix: str = "") -> None:
    """Raise RejectedError as the API does for a configuration that HAProxy rejects."""
    faults = [f'msg="config parsing [{place}:{line}] {message}"' for line, message in find_faults(text)]
    if faults:
        faults += [f'msg="config Error(s) found in configuration file {place}"']
        faults += ['msg="config Fatal errors found in configuration."']
        raise RejectedError(400, f"validation error: exit status 1: {prefix}" + "\n".join(faults))


def load(text: str, stores: dict[str, dict[str, bytes]]) -> Process:
    """Return the process that has loaded *text* and the stored files that it names."""
    process = Process(text=text)
    for section in split_sections(text):
        kind, *name = section[0].split()
        if kind in {"backend", "listen"}:
            process.backends.append(name[0])
        for index, line in enumerate(line for line in section if line.startswith("  server ")):
            if kind in {"backend", "listen"}:
                server = read_server(line)
                weight = server.get("weight", 1)
                state = "maint" if server.get("maintenance") == "enabled" else "ready"
                known = {key: server[key] for key in ("name", "address", "port")}
                process.servers[name[0], server["name"]] = run_server(known, name[0], index, weight, state)
    for file, content in stores["maps"].items():
        if f"{ROOT}/maps/{file}" in text:
            process.maps[file] = list(parse_map_file(content))
    lists = {f"{ROOT}/ssl/{file}": content.decode().splitlines() for file, content in stores["ssl_crt_lists"].items()}
    process.crt_lists = {path: lines for path, lines in lists.items() if path in text}
    named = text + "".join(line for lines in process.crt_lists.values() for line in lines)
    files = {f"{ROOT}/ssl/{file}": content for file, content in stores["ssl_certificates"].items()}
    process.certificates = {path: content for path, content in files.items() if path in named}
    return process


def run_server(server: dict[str, Any], backend: str, index: int, weight: int, state: str) -> dict[str, Any]:
    """Return a running server as the API shows it."""
    weights = {"weight": weight, "iweight": weight, "uweight": weight}
    return {
        **{key: server[key] for key in ("name", "address", "port")},
        **weights,
        "admin_state": state,
        "id": str(index + 1),
        "operational_state": "up",
        "backend_name": backend,
    }


def read_server(line: str) -> dict[str, Any]:
    """Return a `server` line as the API shows it."""
    _, name, address, *options = line.split()
    host, _, port = address.rpartition(":")
    server: dict[str, Any] = {"name": name, "address": host.strip("[]"), "port": int(port)}
    for index, word in enumerate(options):
        if word == "check":
            server["check"] = "enabled"
        if word == "disabled":
            server["maintenance"] = "enabled"
        if word == "weight":
            server["weight"] = int(options[index + 1])
    return server


def write_server(server: dict[str, Any]) -> str:
    """Return the line of a server that the API received."""
    words = [f"  server {server['name']} {server['address']}:{server['port']}"]
    words += ["check"] if server.get("check") == "enabled" else []
    words += [f"weight {server['weight']}"] if "weight" in server else []
    return " ".join(words)


def describe_certificate(content: bytes) -> dict[str, Any]:
    """Return what the API says of a certificate; raises RejectedError for rubbish."""
    try:
        certificate = x509.load_pem_x509_certificates(content)[0]
    except ValueError as exc:
        raise RejectedError(500, "failed to parse certificate") from exc
    names: list[str] = []
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            names = extension.value.get_values_for_type(x509.DNSName)
    found = {
        "domains": ",".join(names),
        "not_after": _format_time(certificate.not_valid_after_utc),
        "not_before": _format_time(certificate.not_valid_before_utc),
        "serial": str(certificate.serial_number),
    }
    return {key: value for key, value in found.items() if value}


def clean_name(store: str, name: str) -> str:
    """Return the name under which the API stores a file: nothing but its ending may have a dot."""
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    name = re.sub(r"[^A-Za-z0-9_-]", "_", stem) + dot + re.sub(r"[^A-Za-z0-9]", "_", ending)
    return name if store != "maps" or name.endswith(".map") else f"{name}.map"


def _format_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z")
