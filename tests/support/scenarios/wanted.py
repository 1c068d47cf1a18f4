"""Configurations that are distinguishable: in what HAProxy answers, and in the files that it loads.

A `Wanted` is made of parts that reach HAProxy in different ways: lines of
haproxy.cfg, whole backends, servers, entries of two maps, a certificate.
"""

import base64
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import trustme
from cryptography import x509

STABLE: Final = "web.localhost"
MOVING: Final = "route.localhost"
BACKENDS: Final = 4
"""Servers to forward to; each says its number."""
MOST_HOSTS: Final = 4

# Everything comes from one object, so that each version of it is one configuration.
FIELDS: Final[dict[str, Any]] = {
    "watchedResources": {"wanted": {"apiVersion": "example.org/v1", "resources": "wanteds"}},
    "templateSnippets": {
        # On sockets of its own in each instance's directory: instances that share a port can be distinguished there.
        "frontends-observe": {
            "template": "frontend observe from profile-http\n"
            "    bind unix@observe.sock\n"
            '    bind unix@observe-tls.sock ssl crt-list {{ paths.crt_list("https.list") }}\n'
            '{% include "frontend-body" %}\n\n'
        },
        "frontend-rules-marks": {
            "template": "{% for one in resources.wanted.list() %}\n"
            "    http-after-response set-header x-text {{ one.spec.text | integer(0, 1000000) }}\n"
            "{% endfor %}\n"
            '    http-after-response set-header x-mark %[str(mark),map_str({{ paths.map("marks.map") }})]\n'
        },
        "backends-wanted": {
            "template": "{% for one in resources.wanted.list() %}{% for backend in one.spec.backends %}\n"
            "backend {{ ident(backend.name) }} from profile-http\n"
            "{% for port in backend.ports %}\n"
            "    server s{{ loop.index }} 127.0.0.1:{{ port | port }}\n"
            "{% endfor %}\n\n"
            "{% endfor %}{% endfor %}\n"
        },
        "map-path-prefix-wanted": {
            "template": "{% for one in resources.wanted.list() %}{% for route in one.spec.routes %}\n"
            "{{ route.host | hostname }}|/ {{ ident(route.backend) }}\n"
            "{% endfor %}{% endfor %}\n"
        },
        "ssl-certificates-wanted": {
            "template": '{% from "certificate" import certificate with context %}\n'
            "{% for one in resources.wanted.list() %}\n{{ certificate(one) }}\n{% endfor %}\n"
        },
    },
    "maps": {
        "marks.map": {
            "template": "{% for one in resources.wanted.list() %}\n"
            "mark {{ one.spec.mark | integer(0, 1000000) }}\n{% endfor %}\n"
        }
    },
}
"""Fields of the configuration that turn a `Wanted` into one of HAProxy."""


class Certificate(msgspec.Struct, frozen=True):
    """A certificate for the stable host."""

    chain: bytes
    key: bytes
    serial: int


def make_certificates(count: int) -> tuple[Certificate, ...]:
    """Return *count* certificates for the stable host."""
    authority = trustme.CA()
    return tuple(_make_certificate(authority) for _ in range(count))


def _make_certificate(authority: trustme.CA) -> Certificate:
    issued = authority.issue_cert(STABLE)
    chain = issued.cert_chain_pems[0].bytes()
    return Certificate(chain, issued.private_key_pem.bytes(), x509.load_pem_x509_certificate(chain).serial_number)


def serial_of(der: bytes) -> int:
    """Return the serial number of a certificate as TLS shows it."""
    return x509.load_der_x509_certificate(der).serial_number


class Wanted(msgspec.Struct, frozen=True):
    """One configuration, by its parts."""

    text: int = 0
    """In the text of haproxy.cfg, and a header of each answer."""
    hosts: tuple[int, ...] = ()
    """Numbers of hosts that have a backend of their own."""
    mark: int = 0
    """In a map, and a header of each answer."""
    servers: tuple[int, ...] = (0,)
    """Which servers the stable host has."""
    route: int = 0
    """To which of two backends the moving host leads."""
    certificate: int = 0

    @property
    def data(self) -> tuple[Any, ...]:
        """What every version of HAProxy takes while it runs."""
        return self.mark, self.servers, self.route, self.certificate

    def as_object(self, ports: Sequence[int], certificates: Sequence[Certificate]) -> dict[str, Any]:
        """Return the object that makes it; *ports* are those of the servers to forward to."""
        shown = certificates[self.certificate]
        backends = {
            "web": [ports[number] for number in self.servers],
            # Both are there all the time.
            "one": [ports[0]],
            "two": [ports[1]],
            **{f"h{number}": [ports[number % BACKENDS]] for number in self.hosts},
        }
        routes = {STABLE: "web", MOVING: ("one", "two")[self.route], **{host(one): f"h{one}" for one in self.hosts}}
        return {
            "apiVersion": "example.org/v1",
            "kind": "Wanted",
            "metadata": {"name": "wanted", "namespace": "default"},
            "spec": {
                "text": self.text,
                "mark": self.mark,
                "backends": [{"name": name, "ports": found} for name, found in backends.items()],
                "routes": [{"host": name, "backend": backend} for name, backend in routes.items()],
            },
            "data": {
                "tls.crt": base64.b64encode(shown.chain).decode(),
                "tls.key": base64.b64encode(shown.key).decode(),
            },
        }


def host(number: int) -> str:
    """Return the name of a host with a backend of its own."""
    return f"h{number}.localhost"


KINDS: Final = ("endpoints", "map", "route", "certificate", "text", "hosts", "mixed", "everything")
"""What a change may be of; the last four need a reload, some of them on some versions only."""


def change(kind: str, former: Wanted, number: int, rng: random.Random, certificates: int) -> Wanted:
    """Return *former* with a change of *kind*; *number* is different each time."""
    fresh: dict[str, Any] = {
        "endpoints": {"servers": _other_servers(former.servers, rng)},
        "map": {"mark": number},
        "route": {"route": 1 - former.route},
        "certificate": {"certificate": (former.certificate + 1) % certificates},
        "text": {"text": number},
        "hosts": {"hosts": (*former.hosts, number)[-MOST_HOSTS:]},
    }
    parts = {
        "mixed": ["text", rng.choice(["endpoints", "route", "certificate"]), "map"],
        "everything": list(fresh),
    }.get(kind, [kind])
    return msgspec.structs.replace(former, **{name: value for part in parts for name, value in fresh[part].items()})


def _other_servers(former: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    while True:
        found = tuple(sorted(rng.sample(range(BACKENDS), rng.choice([1, 1, 2, 3]))))
        if found != former:
            return found


def read_wanted(directory: Path, ports: Sequence[int], certificates: Sequence[Certificate]) -> Wanted:
    """Return what the files in *directory*, of one generation, would have HAProxy do."""
    text = (directory / "haproxy.cfg").read_text()
    paths = _entries(directory / "maps/path-prefix.map")
    pem = (directory / "ssl/default_wanted.pem").read_bytes()
    serial = x509.load_pem_x509_certificate(pem).serial_number
    servers = _servers(text, "web")
    found = {int(number) for number in re.findall(r"set-header x-text (\d+)", text)}
    assert len(found) == 1, f"haproxy.cfg is of more than one configuration: {found}"
    hosts = [key.partition(".")[0] for key in paths if re.match(r"h\d+\.localhost\|/", key)]
    for name in hosts:
        assert f"\nbackend {name} " in text, f"the map leads to a backend of {name}, which there is not"
    return Wanted(
        text=found.pop(),
        hosts=tuple(sorted(int(name[1:]) for name in hosts)),
        mark=int(_entries(directory / "maps/marks.map")["mark"]),
        servers=tuple(sorted(ports.index(port) for port in servers)),
        route=["one", "two"].index(paths[f"{MOVING}|/"]),
        certificate=[one.serial for one in certificates].index(serial),
    )


def _entries(path: Path) -> dict[str, str]:
    return dict(line.split() for line in path.read_text().splitlines() if line and not line.startswith("#"))


def _servers(text: str, backend: str) -> list[int]:
    section = re.search(rf"^backend {backend} .*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None, f"haproxy.cfg has no backend {backend}"
    return [int(port) for port in re.findall(r"server \S+ 127\.0\.0\.1:(\d+)", section[0])]


def is_made_of(found: Wanted, wanted: Iterable[Wanted]) -> bool:
    """Whether *found* is one of *wanted*, or one's structure with all the data of another: reloads may be held back.

    Without the reload a new host waits for its backend, and one that goes is gone already.
    """
    known = list(wanted)
    hosts = [set(one.hosts) for one in known]
    return (
        found.text in {one.text for one in known}
        and any(set(found.hosts) == one & other for one in hosts for other in hosts)
        and found.data in {one.data for one in known}
    )
