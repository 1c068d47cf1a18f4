"""A victim and an attacker in one cluster, and what must hold whatever the attacker writes."""

import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from haptic_trio.config.model import Duration
from haptic_trio.config.suites import read_library_suites
from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.haproxy.config.parser import ConfigSyntaxError, parse_config
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.templating.values.subjects import subject_of
from haptic_trio.validation_tests.fixtures import make_stores
from haptic_trio.validation_tests.rendering import CaseRenderer
from tests.attacks.inputs.mutations import (
    ATTACKER,
    ATTACKER_AGE,
    Mutation,
    batches,
    is_read,
    leaves,
    samples,
    tenant_of,
    without,
)
from tests.attacks.inputs.samples import SAMPLES, shared
from tests.attacks.inputs.shapes import Learned, flags_from_data, sections
from tests.attacks.inputs.tenants import BELOW_WILDCARDS, NAMED_BELOW, VICTIM_HOSTS, WILDCARDS, Tenant, cluster
from tests.attacks.redirects import faulty_items, faulty_redirects, foreign_redirects, is_sent_to_https
from tests.bad_inputs.world import LIBRARIES, stores_of
from tests.support.components.rendering import library_config
from tests.support.traffic.proxy import write_generation
from tests.support.traffic.servers import dns_names

VICTIM: Final = "victim"
RENDER_LIMIT: Final = 60.0
CHECK_LIMIT: Final = 60.0
KEY_SET: Final = "https://issuer.example.com/jwks.json"
LISTS: Final = {"bots": "https://lists.example.com/bots.txt", "tor": "https://lists.example.com/tor.txt"}
_MAPS: Final = {
    "maps/path-exact.map": r"[a-z0-9.*-]+\|/[^\s|#]* [A-Za-z0-9_.:-]+",
    "maps/path-prefix.map": r"[a-z0-9.*-]+\|(/[^\s|#]*)? [A-Za-z0-9_.:-]+",
    "maps/tls-host.map": r"[a-z0-9.*-]+ yes",
    # A value goes on to the end of its line: there are no blanks at either end that would be lost.
    "maps/gateway-exact.map": r"[A-Za-z0-9._~%/-]+\|[a-z0-9.*-]+\|/\S* \S(.*\S)?",
    "maps/gateway-prefix.map": r"[A-Za-z0-9._~%/-]+\|[a-z0-9.*-]*\|/?\S* \S(.*\S)?",
    "maps/gateway-listeners.map": r"[A-Za-z0-9_.:-]+\|[a-z0-9.*-]+ \S(.*\S)?",
    "maps/gateway-rules.map": r"\S+ \S(.*\S)?",
    "maps/nginx-canary-paths.map": r"[A-Za-z0-9_.:-]+\|[a-z0-9.*-]+\|=?/[^\s|#]* [A-Za-z0-9_.:-]+=[A-Za-z0-9_.:-]+"
    r"|[A-Za-z0-9_.:-]+= yes",
    "maps/nginx-canary-terms.map": r"[A-Za-z0-9_.:-]+ [A-Za-z0-9!*+.^_~-]*,[A-Za-z0-9%._~-]*,"
    r"(\d+:[A-Za-z0-9%._~-]+)?,[A-Za-z0-9!*+.^_~-]*",
    "maps/nginx-auth.map": r"[0-9a-zA-Z_.:-]+ [A-Za-z0-9%,|*@$:._~\[\]-]+",
    "maps/haproxy-ingress-auth.map": r"[0-9a-zA-Z_.:-]+ [A-Za-z0-9%,|*@$:._~\[\]-]+",
}
_OF_SETTINGS: Final = "general/redirect-exempt.list"
"""A file that objects have no part in."""
_COOKIE_PATHS: Final = "maps/cookie-paths-"
"""Prefix of maps whose values become attributes of cookies."""
_COOKIE_PATH: Final = r"/[^\s|#;,\\]* /[^\s|#;,\\]*"
_OTHER_MAP: Final = r"[0-9A-Za-z_.:/*|-]+ [A-Za-z0-9_.,:-]+"
_WITH_OPTIONS: Final = {"Ingress", "HTTPRoute", "GRPCRoute"}
_OPTIONAL: Final = {"annotations", "rules"}
_ITEMS: Final = ("maps/gateway-exact.map", "maps/gateway-prefix.map", "maps/gateway-rules.map")
_ENTRY: Final = re.compile(r"(?P<file>[A-Za-z0-9_./:+-]+)(?: \[[^\]\n]*\])?(?P<names>(?: !?[a-z0-9.*-]+)*)")
_HOST: Final = re.compile(r"(?:\*\.)?[a-z0-9.-]+|")
_PEM: Final = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----|[A-Za-z0-9+/=]{1,76}|")
_DECIDES: Final = re.compile(r"\{ var\(txn\.(?:scope|backend|host)\)([^}]*)\}")


class Fault(msgspec.Struct, frozen=True):
    """What an attacker's objects did that they must not."""

    oracle: str
    detail: str


class Site:
    """The victim's objects, and those of attackers for a while."""

    def __init__(self) -> None:
        config = library_config(
            *LIBRARIES, sslRedirect=True, gatewayFilters={"error-pages": ["*"]}, jwksUrls=[KEY_SET], denyLists=LISTS
        )
        # The machine may be busy, and an attacker has many Ingresses with a rate limit at once.
        patient = msgspec.structs.replace(
            config.templating, render_timeout=Duration(RENDER_LIMIT), max_namespace_table_entries=1_000_000_000
        )
        self.config = msgspec.structs.replace(config, templating=patient)
        self.stores = make_stores(self.config)
        self.renderer = Renderer(self.config)
        self.put(cluster())
        self.put(shared(VICTIM, 1))
        for sample in SAMPLES:
            self.put(sample.build(Tenant(VICTIM, 0, 1)))
        self.put(shared(ATTACKER, ATTACKER_AGE))
        self.refs = {ref_of(one) for store in self.stores.values() for one in store.list()}
        self.baseline = self.renderer.render_here(self.stores)
        assert self.baseline.rejections == ()
        self.sections = sections(self.baseline.text)
        self.files = texts_of(self.baseline)
        self.probes = dict(_probes(self.files))
        hosts = (*VICTIM_HOSTS, *BELOW_WILDCARDS)
        self.lists = {host: tuple(self._lists_for(host)) for host in hosts}
        self.certificates = {host: certificates_for(host, self.files, self.lists[host]) for host in hosts}
        self.to_https = {host: is_sent_to_https(host, self.files) for host, _ in self.probes}
        self.redirects = frozenset(foreign_redirects(self.baseline.text, ATTACKER))
        self.common_redirects = {line for name, line in self.redirects if name.startswith("frontend gateway-port::")}
        named = [name.split()[1] for name in self.sections if VICTIM in name]
        files = (name for name in self.files if VICTIM in name)
        self.names_of_victim = (*VICTIM_HOSTS, *WILDCARDS, *named, *files)
        """Its hosts, sections and files."""
        self.names_for_attackers = (*self.names_of_victim, *NAMED_BELOW)
        self.learned = Learned()
        self._learn()

    def _lists_for(self, host: str) -> Iterator[str]:
        """Yield the crt-lists of the victim's Gateways, and that of Ingresses for a host that the victim has there."""
        if any(host == one for one, _ in self.probes):
            yield "ssl/https.list"
        yield from (name for name in self.files if VICTIM in name and name.endswith(".list"))

    def put(self, objects: Sequence[Resource]) -> None:
        """Add or replace objects."""
        for one in objects:
            for store in stores_of(self.config, self.stores, one):
                store.upsert(one)

    def remove(self, objects: Sequence[Resource]) -> None:
        """Take objects out."""
        for one in objects:
            for store in stores_of(self.config, self.stores, one):
                if store.by_ref(ref_of(one)) is not None:
                    store.delete(ref_of(one))

    def render_with(self, objects: Sequence[Resource]) -> Rendered:
        """Render with *objects*, which are gone afterwards."""
        self.put(objects)
        try:
            return self.renderer.render_here(self.stores)
        finally:
            self.remove(objects)

    def _learn(self) -> None:
        """Take in the shapes of what the libraries' own tests and benign tenants lead to."""
        for name in LIBRARIES:
            for suite in read_library_suites(name):
                renderer = CaseRenderer(suite.config)
                for test in suite.tests.values():
                    if (rendered := renderer.render(test).rendering.output) is not None:
                        self._learn_of(rendered)
        for batch in _benign():
            self._learn_of(self.render_with(batch))

    def _learn_of(self, rendered: Rendered) -> None:
        files = texts_of(rendered)
        self.learned.learn(rendered.text, [files[name] for name in _ITEMS if name in files])

    def faults(self, mutations: Sequence[tuple[int, Mutation]], directory: Path | None) -> list[Fault]:
        """Return what the attackers bring about together; *directory* is for `haproxy -c`, which None leaves out."""
        copies = [(mutation, mutation.objects(number)) for number, mutation in mutations]
        objects = [one for _, copy in copies for one in copy if ref_of(one) not in self.refs]
        try:
            rendered = self.render_with(objects)
        except RejectedError as exc:
            return [Fault("render", str(exc))]
        return list(self._faults(rendered, {subject_key(subject_of(one)) for one in objects}, directory))

    def _faults(self, rendered: Rendered, own: set[tuple[str, ...]], directory: Path | None) -> Iterator[Fault]:
        for rejection in rendered.rejections:
            if subject_key(rejection.subject) not in own:
                yield Fault("rejected", f"{rejection.subject}: {rejection.problem.message}")
        try:
            parse_config(rendered.config.pieces, source="haproxy.cfg")
        except ConfigSyntaxError as exc:
            yield Fault("parser", str(exc))
        files = texts_of(rendered)
        yield from (Fault("line", line) for line in self._foreign_lines(rendered.text))
        yield from (Fault("flag", line) for line in _flags(rendered.text, self.baseline.text))
        for name, text in files.items():
            yield from (Fault("file", f"{name}: {line!r}") for line in self._foreign_entries(name, text))
        yield from (Fault("victim", line) for line in self._changed(rendered.text, files))
        yield from (Fault("redirect", line) for line in self._bad_redirects(rendered.text, files))
        if directory is not None and (problem := check(directory, rendered.text, files)):
            yield Fault("haproxy", problem)

    def _foreign_lines(self, text: str) -> list[str]:
        return self.learned.unknown(text)

    def _foreign_entries(self, name: str, text: str) -> Iterator[str]:
        if name.endswith(".lua") or name == _OF_SETTINGS:
            if text != self.files.get(name):
                yield "no file of the libraries and their settings"
        elif name.endswith(".map"):
            others = _COOKIE_PATH if name.startswith(_COOKIE_PATHS) else _OTHER_MAP
            pattern = re.compile(_MAPS.get(name, others))
            yield from (line for line in text.split("\n") if line and not pattern.fullmatch(line))
            if name in _ITEMS:
                yield from self.learned.unknown_items(text)
        elif name.endswith(".list") and name.startswith("general/"):
            yield from (line for line in text.split("\n") if not _HOST.fullmatch(line))
        elif name.endswith(".list"):
            yield from (line for line in text.split("\n") if line.strip() and not _ENTRY.fullmatch(line.strip()))
        elif name.endswith(".pem"):
            yield from (line for line in text.split("\n") if not _PEM.fullmatch(line))
        else:
            yield "a file of no known kind"

    def _bad_redirects(self, text: str, files: Mapping[str, str]) -> Iterator[str]:
        yield from faulty_redirects(text)
        yield from faulty_items(files["maps/gateway-rules.map"])
        yield from (
            f"{name}: {line}"
            for name, line in foreign_redirects(text, ATTACKER)
            # A namespace of another name is the attacker's as well: its Gateways have the redirects of all frontends.
            if (name, line) not in self.redirects
            and not (name.startswith("frontend gateway-port::") and line in self.common_redirects)
        )
        for host, before in self.to_https.items():
            if is_sent_to_https(host, files) != before:
                yield f"{host} is {'no longer ' if before else ''}sent to HTTPS"

    def _changed(self, text: str, files: Mapping[str, str]) -> Iterator[str]:
        now = sections(text)
        # What all frontends have in common may decide about hosts of the attacker.
        common = Counter(now["frontend http"]) - Counter(self.sections["frontend http"])
        for name, lines in self.sections.items():
            found = now.get(name, [])
            added = Counter(found) - Counter(lines)
            if not _is_subsequence(lines, found):
                yield f"{name} has lost {sorted(Counter(lines) - Counter(found))}"
            if VICTIM in name and (name.startswith("backend") or added - common):
                yield from (f"{name} has got {line}" for line in added)
            yield from (line for line in added if self._is_about_victim(line))
        yield from self._changed_files(files)

    def _is_about_victim(self, line: str) -> bool:
        """Whether a line of a frontend decides about a host or a backend of the victim."""
        words = {word.strip("'") for condition in _DECIDES.findall(line) for word in condition.split()}
        return not words.isdisjoint(self.names_of_victim)

    def _changed_files(self, files: Mapping[str, str]) -> Iterator[str]:
        for name, content in self.files.items():
            if name not in files:
                yield f"{name} is gone"
            elif name.endswith(".map"):
                before, after = entries(content), entries(files[name])
                yield from (f"{name}: {key} was {value}" for key, value in before.items() if after.get(key) != value)
            elif name.endswith(".pem") and content != files[name]:
                yield f"{name} is another"
        for host, certificates in self.certificates.items():
            if (found := certificates_for(host, files, self.lists[host])) != certificates:
                yield f"the certificates for {host} are {found} and were {certificates}"
        for (host, path), backend in self.probes.items():
            if backend_for(host, path, files) != backend:
                yield f"{host}{path} goes to {backend_for(host, path, files)} and went to {backend}"


def subject_key(subject: object) -> tuple[str, str, str]:
    """Return what an object is named by."""
    return subject.kind, subject.namespace, subject.name  # type: ignore[attr-defined]


def texts_of(rendered: Rendered) -> dict[str, str]:
    """Return the text of every file but haproxy.cfg."""
    return {name: found.text for name, found in rendered.texts.items() if name != "haproxy.cfg"}


def _flags(text: str, baseline: str) -> Iterator[str]:
    known = set(baseline.split("\n"))
    for line in text.split("\n"):
        if line not in known and "'-" in line and flags_from_data(line):
            yield line.strip()


def _is_subsequence(lines: Sequence[str], found: Sequence[str]) -> bool:
    rest = iter(found)
    return all(line in rest for line in lines)


def entries(text: str) -> dict[str, str]:
    """Return the entries of a map, of those with the same key the first."""
    found: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        key, _, value = line.partition(" ")
        found.setdefault(key, value)
    return found


def _probes(files: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield hosts and paths that the victim's Ingresses serve, with the backend that requests for them go to."""
    for name in ("maps/path-exact.map", "maps/path-prefix.map"):
        for key in entries(files[name]):
            host, _, path = key.partition("|")
            below = {f"other.{host.removeprefix('*.')}"} & {*BELOW_WILDCARDS} if host.startswith("*.") else set()
            for at in below | ({host} & {*VICTIM_HOSTS}):
                for one in {path or "/", path.rstrip("/") or "/"}:
                    yield (at, one), backend_for(at, one, files)


def backend_for(host: str, path: str, files: Mapping[str, str]) -> str:
    """Return the backend that the maps of Ingresses lead to, as the frontends ask them."""
    exact, prefix = entries(files["maps/path-exact.map"]), entries(files["maps/path-prefix.map"])
    for scope in (host, "*." + host.partition(".")[2], "*"):
        if found := exact.get(f"{scope}|{path}"):
            return found
        wanted = f"{scope}|{path}/"
        if fitting := [key for key in prefix if wanted.startswith(key)]:
            return prefix[max(fitting, key=len)]
    return ""


def certificates_for(host: str, files: Mapping[str, str], lists: Sequence[str]) -> dict[str, str]:
    """Return the certificate that HAProxy takes for *host*, with its options, for each of the crt-lists *lists*."""
    return {name: _line_for(host, files.get(name, ""), files) for name in lists}


def _line_for(host: str, text: str, files: Mapping[str, str]) -> str:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    for wanted in (host, "*." + host.partition(".")[2]):
        for line in lines:
            match = _ENTRY.fullmatch(line)
            names = set(match["names"].split()) if match else set()
            if f"!{host}" not in names and wanted in (
                names or _names_in(files.get(match["file"], "") if match else "")
            ):
                return _certificate(line, files)
    return _certificate(lines[0], files) if lines else ""


def _certificate(line: str, files: Mapping[str, str]) -> str:
    """Return the options and the digest of the file: a wildcard that excludes the hosts of others has a copy of it."""
    match = _ENTRY.fullmatch(line)
    file = match["file"] if match else line
    options = line[len(file) : match.start("names")] if match else ""
    return f"{sha256(files.get(file, file).encode()).hexdigest()}{options}"


@cache
def _names_in(pem: str) -> frozenset[str]:
    if "BEGIN CERTIFICATE" not in pem:
        return frozenset()
    return frozenset(dns_names(x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.DER)))


def check(directory: Path, text: str, files: Mapping[str, str]) -> str:
    """Return what is wrong with how `haproxy -c` ended; empty when it accepts the configuration."""
    directory.mkdir()
    command = [*write_generation(directory, text, files), "-c"]
    try:
        run = subprocess.run(command, capture_output=True, env=clean_environment(), timeout=CHECK_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"it has not ended after {CHECK_LIMIT} s"
    return "" if run.returncode == 0 else f"exit code {run.returncode}: {run.stderr.decode(errors='replace')[:2_000]}"


def _benign() -> Iterator[list[Resource]]:
    """Yield all samples, and each sample again for every optional field of it, without that field."""
    yield [one for number, sample in enumerate(samples().values(), 1) for one in sample.build(tenant_of(number))]
    for sample in SAMPLES:
        kinds = [one["kind"] for one in sample.build(tenant_of(1))]
        optional = [
            leaf
            for leaf in leaves(sample.name)
            if is_read(leaf) and not leaf.of_key and kinds[leaf.object] in _WITH_OPTIONS and leaf.path[1] in _OPTIONAL
        ]
        for some in batches(optional, sample.copies):
            yield [one for number, leaf in enumerate(some, 1) for one in without(leaf, number)]


def blame(
    mutations: Sequence[tuple[int, Mutation]], is_bad: Callable[[Sequence[tuple[int, Mutation]]], bool]
) -> list[Mutation]:
    """Return the mutations that *is_bad* holds for by themselves; all that are left where it takes several."""
    if len(mutations) == 1:
        return [mutations[0][1]]
    middle = len(mutations) // 2
    halves = [half for half in (mutations[:middle], mutations[middle:]) if is_bad(half)]
    if not halves:
        return [mutation for _, mutation in mutations]
    return [one for half in halves for one in blame(half, is_bad)]
