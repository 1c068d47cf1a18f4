"""Every kind of change, and what each takes of a real HAProxy: performed, and the reloads counted at HAProxy.

python -m tests.support.scenarios.runtime_changes       writes the table of docs/runtime-changes.md again
"""

import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import FileKind, Generation, make_file
from tests.support.processes.haproxy import build_generation, instances
from tests.support.processes.haproxy_versions import VersionUnavailableError, provide
from tests.support.processes.ports import free_port

VERSIONS = ("2.8", "3.2", "3.4")
PAGE = Path(__file__).parents[3] / "docs" / "runtime-changes.md"

Site = Mapping[str, str]

CA, OTHER_CA = trustme.CA(), trustme.CA()
LISTED = "ssl/d.pem [ca-file ssl/listed.pem verify optional]"
"""A line of the crt-list."""


@cache
def pem(name: str, number: int = 1) -> str:
    """Return one of the certificates for a name."""
    return CA.issue_cert(name, common_name=str(number)).private_key_and_cert_chain_pem.bytes().decode()


@cache
def revocations(*serials: int) -> str:
    """Return a list of revoked certificates."""
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    builder = x509.CertificateRevocationListBuilder(name, now, now + timedelta(days=1))
    for serial in serials:
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(revoked)
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), SHA256())
    return made.public_bytes(Encoding.PEM).decode()


def base() -> dict[str, str]:
    """Return the site that every change begins with: parts of the configuration, and files by path."""
    return {
        "global": "  maxconn 200\n",
        "defaults": "",
        "frontend": "",
        "balance": "",
        "servers": "  server s1 127.0.0.1:1\n  server s2 127.0.0.2:1 weight 5\n",
        "hashed": "  server s1 127.0.0.1:1\n  server s2 127.0.0.2:1\n",
        "backends": "backend old from http\n  server s1 127.0.0.1:1\n",
        "maps/p.map": "/a app\n/b app\n",
        "maps/r.map": "^/a app\n",
        "ssl/l.list": f"ssl/a.pem\nssl/b.pem\n{LISTED}\n",
        "ssl/a.pem": pem("a.test"),
        "ssl/b.pem": pem("b.test"),
        "ssl/d.pem": pem("d.test"),
        "ssl/ca.pem": CA.cert_pem.bytes().decode(),
        "ssl/listed.pem": CA.cert_pem.bytes().decode(),
        "ssl/endpoints.pem": CA.cert_pem.bytes().decode(),
        "ssl/revoked.pem": revocations(),
        "lists/x.acl": "10.0.0.1\n",
        "lists/y.acl": "/a\n/b\n",
    }


KINDS = {"map": FileKind.MAP, "list": FileKind.CRT_LIST, "pem": FileKind.CERT, "acl": FileKind.FILE}


def generation(site: Site, port: int) -> Generation:
    """Return *site* as a generation that binds *port*."""
    text = f"""\
global
{site["global"]}
defaults http
  mode http
  timeout connect 1s
  timeout client 1s
  timeout server 1s
{site["defaults"]}
frontend web from http
  bind 127.0.0.1:{port} ssl crt-list ssl/l.list ca-file ssl/ca.pem crl-file ssl/revoked.pem verify optional
  acl known src -f lists/x.acl
{site["frontend"]}
  http-request deny if known {{ path -i -m beg -f lists/y.acl -f lists/x.acl }} || {{ path -m sub -f lists/y.acl }}
  use_backend %[path,map(maps/p.map)] if known
  use_backend %[path,map_reg(maps/r.map)]
backend app from http
{site["balance"]}{site["servers"]}
backend hashed from http
  balance source
  hash-type consistent
{site["hashed"]}
backend secured from http
  server s1 127.0.0.1:1 ssl verify required ca-file ssl/endpoints.pem
{site["backends"]}"""
    files = [make_file(KINDS[path.rpartition(".")[2]], path, site[path]) for path in site if "/" in path]
    return build_generation(text, files)


def changes() -> dict[str, dict[str, str]]:
    """Return every kind of change by name, as the parts of the site that are other then."""
    one = base()
    servers, hashed, other = one["servers"], one["hashed"], OTHER_CA.cert_pem.bytes().decode()
    return {
        "server: address and port": {"servers": servers.replace("127.0.0.1:1", "127.0.0.9:9")},
        "server: weight": {"servers": servers.replace("weight 5", "weight 6")},
        "server: disabled": {"servers": servers.replace("weight 5", "weight 5 disabled")},
        "server: order": {"servers": "".join(reversed(servers.splitlines(keepends=True)))},
        "server: another option, beside a server that serves": {"servers": servers.replace("weight 5", "maxconn 7")},
        "server: another option of all": {"servers": servers.replace(":1", ":1 maxconn 7")},
        "server: health check added, beside a server that serves": {"servers": servers.replace("5", "5 check")},
        "server: added": {"servers": f"{servers}  server s3 127.0.0.3:1\n"},
        "server: added with a health check": {"servers": f"{servers}  server s3 127.0.0.3:1 check inter 1h\n"},
        "server: added with a host name": {"servers": f"{servers}  server s3 localhost:1\n"},
        "server: removed": {"servers": servers.splitlines(keepends=True)[0]},
        "server, consistent hashing: added at the end": {"hashed": f"{hashed}  server s3 127.0.0.3:1\n"},
        "server, consistent hashing: removed at the end": {"hashed": hashed.splitlines(keepends=True)[0]},
        "server, consistent hashing: removed elsewhere": {"hashed": hashed.splitlines(keepends=True)[1]},
        "map: entries": {"maps/p.map": "/a hashed\n/c app\n"},
        "map of regular expressions: entries": {"maps/r.map": "^/z app\n^/a hashed\n"},
        "list of an ACL: entries": {"lists/x.acl": "10.0.0.2\n"},
        "list of several ACLs: entries, one of them twice": {"lists/y.acl": "/b\n/c d\n/b\n"},
        "certificate: content": {"ssl/b.pem": pem("b.test", 2)},
        "certificate: content of the default": {"ssl/a.pem": pem("a.test", 2)},
        "certificate: added, with its crt-list entry": {
            "ssl/c.pem": pem("c.test"),
            "ssl/l.list": f"ssl/a.pem\nssl/c.pem [alpn h2] c.test\nssl/b.pem\n{LISTED}\n",
        },
        "certificate: removed, with its crt-list entry": {"ssl/l.list": f"ssl/a.pem\n{LISTED}\n", "ssl/b.pem": ""},
        "crt-list: options or names of an entry": {"ssl/l.list": f"ssl/a.pem\nssl/b.pem [alpn h2] x.test\n{LISTED}\n"},
        "crt-list: authorities of an entry": {
            "ssl/l.list": f"ssl/a.pem\nssl/b.pem\n{LISTED.replace('listed', 'ca')}\n"
        },
        "crt-list: another default": {"ssl/l.list": f"ssl/b.pem\nssl/a.pem\n{LISTED}\n"},
        "authorities of clients (`ca-file`): one more": {"ssl/ca.pem": one["ssl/ca.pem"] + other},
        "authorities of clients (`ca-file`): others": {"ssl/ca.pem": other},
        "authorities of clients, of a crt-list entry: one more": {"ssl/listed.pem": one["ssl/ca.pem"] + other},
        "authorities of clients, of a crt-list entry: others": {"ssl/listed.pem": other},
        "revocations (`crl-file`): content": {"ssl/revoked.pem": revocations(7)},
        "authorities of endpoints (`ca-file` of servers): content": {"ssl/endpoints.pem": one["ssl/ca.pem"] + other},
        "backend: added from a profile": {
            "backends": one["backends"] + "backend new from http\n  server s1 127.0.0.1:1 check inter 1h\n"
        },
        "backend: added with settings of its own": {
            "backends": one["backends"] + "backend new from http\n  balance leastconn\n  server s1 127.0.0.1:1\n"
        },
        "backend: removed": {"backends": ""},
        "backend: algorithm": {"balance": "  balance leastconn\n"},
        "frontend: rule": {"frontend": "  http-request set-header x y\n"},
        "profile: setting": {"defaults": "  timeout queue 2s\n"},
        "global: setting": {"global": "  maxconn 300\n"},
    }


async def perform(binary: Path, root: Path) -> dict[str, bool]:
    """Make every change to an instance below *root* and return which reloaded, by the count of HAProxy."""
    found: dict[str, bool] = {}
    port = free_port()
    async with instances(root, binary, on_exit="stop") as (agent,):
        for name, parts in changes().items():
            await agent.activate(generation(base(), port))
            before = (await agent.describe()).reloads
            site = {key: value for key, value in {**base(), **parts}.items() if value or "/" not in key}
            result = await sync_endpoint(agent, generation(site, port))
            found[name] = (await agent.describe()).reloads > before
            assert result.changed
            assert found[name] is result.reloaded, (name, result)
            assert not any("rejected" in reason for reason in result.reasons), (name, result.reasons)
    return found


def write_table(page: str, columns: Mapping[str, Mapping[str, bool]], names: Sequence[str]) -> str:
    """Return *page* with the table of what was found, by version, in place of its own."""
    lines = [f"| change | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    for name in names:
        cells = ("reload" if found[name] else "runtime" for found in columns.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    before, _, rest = page.partition("\n| ")
    _, _, after = rest.partition("\n\n")
    return "\n".join([before, *lines, "", after])


def read_column(version: str) -> dict[str, bool]:
    """Return what the page says of *version*: by change, whether it reloads."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    column = [cell.strip() for cell in rows[0]].index(version)
    return {row[0].strip(): row[column].strip() == "reload" for row in rows[2:]}


def main() -> None:
    """Write the table; a version that cannot be had ends this, since the table would lack it."""
    columns = {}
    for version in VERSIONS:
        try:
            with tempfile.TemporaryDirectory(prefix="haproxy-changes-") as root:
                columns[version] = trio.run(perform, provide(version) / "haproxy", Path(root))
        except VersionUnavailableError as exc:
            raise SystemExit(f"HAProxy {version}: {exc}") from exc
    PAGE.write_text(write_table(PAGE.read_text(), columns, list(changes())))


if __name__ == "__main__":
    main()
