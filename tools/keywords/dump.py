"""Write the keyword tables of haptic_trio/haproxy/keywords.json from real HAProxy binaries.

Usage: python -m tools.keywords.dump 2.8 3.2 3.4

Each table says which of the versions know a word. Most come from the listing
of `haproxy -dKall`; of what is built into section parsers and in no listing,
each binary is asked name by name whether it knows it.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

import haptic_trio.haproxy
from haptic_trio.haproxy.grammar.keywords import groups_of_dump
from tests.support.processes.haproxy_versions import provide
from tools.keywords import candidates
from tools.keywords.shapes import measure_shapes

TABLE = Path(haptic_trio.haproxy.__file__).parent / "grammar" / "keywords.json"
PREAMBLE = "global\n  expose-experimental-directives\n"
UNNAMED = {"global", "traces", "namespace_list"}
DEPRECATED = "  expose-deprecated-directives\n"
# With the word in place of the braces.
_REJECTED = (
    r"unknown (keyword|statement|option|fetch|action|subcommand|match method|parameter) '{}'|'{}' out of section|"
    r"(but got|found|rather than) '{}'|'{}' (directive )?(is )?(not supported any|no longer supported|not supported|"
    r"is not implemented|not implemented)|not supported any ?more|was compiled without|has been removed|"
    r"unknown match method '{}'|unknown keyword 'option'"
)


def read_listing(binary: Path) -> str:
    """Return the output of `haproxy -dKall`."""
    # `-c` of an empty file keeps it from starting; the listing comes first.
    command: list[str | Path] = [binary, "-dKall", "-q", "-c", "-f", "/dev/null"]
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=30, env={}).stdout


def read_groups(binary: Path, *, shapes: bool = True) -> dict[str, set[str]]:
    """Return all that *binary* knows: its listing, the candidates that it accepts, and the *shapes* of lines."""
    groups = {name: set(words) for name, words in groups_of_dump(read_listing(binary)).items()}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        prober = _Prober(binary, Path(folder))
        # What stands in a section of an unknown kind would be taken for words of the section before.
        for find_probes in (_kind_probes, partial(_probes, groups)):
            probes = list(find_probes())
            for (group, entry, _, _), known in zip(probes, pool.map(prober.knows, probes), strict=True):
                if known:
                    groups.setdefault(group, set()).add(entry)
        if shapes:
            groups["shape"] = set(measure_shapes(binary, Path(folder)))
    return groups


def merge(known: Mapping[str, Mapping[str, set[str]]]) -> dict[str, dict[str, list[str]]]:
    """Return by group and by the versions that know them the words of *known*, which is by version and group."""
    merged: dict[str, dict[str, list[str]]] = {}
    for group in sorted({group for groups in known.values() for group in groups}):
        words = sorted({word for groups in known.values() for word in groups.get(group, ())})
        for word in words:
            versions = " ".join(version for version, groups in known.items() if word in groups.get(group, ()))
            merged.setdefault(group, {}).setdefault(versions, []).append(word)
    return merged


_Probe = tuple[str, str, str, str]
"""Group, entry, the text whose last line is the question, and the word that HAProxy would name when it rejects it."""


def _kind_probes() -> Iterator[_Probe]:
    for kind in candidates.KINDS.split():
        yield "kinds", kind, f"{kind}{'' if kind in UNNAMED else ' x'}\n", kind


def _probes(listed: Mapping[str, set[str]]) -> Iterator[_Probe]:
    def wanted(group: str, names: str) -> Iterator[str]:
        return (name for name in names.split() if name.partition(":")[0] not in listed.get(group, ()))

    for word in wanted("global", candidates.GLOBAL):
        yield "global", word, f"global\n  {word}\n", word
    for word in wanted("proxy", candidates.PROXY):
        yield "proxy", word, f"listen x\n  {word}\n", word
    for kind, names in candidates.SECTIONS.items():
        for word in wanted(kind, names) if kind in listed["kinds"] else ():
            yield (
                kind,
                word,
                f"{kind}{'' if kind in UNNAMED else ' x'}\n{candidates.NEEDS.get(kind, '')}  {word}\n",
                word,
            )
    for word in wanted("option", candidates.OPTIONS):
        yield "option", word, f"listen x\n  option {word}\n", word
    for word in wanted("log-forward option", candidates.FORWARD_OPTIONS):
        yield "log-forward option", word, f"log-forward x\n  option {word}\n", word
    for word in wanted("timeout", candidates.TIMEOUTS):
        yield "timeout", word, f"listen x\n  timeout {word} 1s\n", word
    for rule_set, names in candidates.RULES.items():
        for word in wanted(rule_set, names):
            entry = word.replace("sc0", "sc*")
            yield rule_set, entry, f"listen x\n  {rule_set} {word}\n", word
    yield from _option_probes(wanted)


def _option_probes(wanted: Callable[[str, str], Iterator[str]]) -> Iterator[_Probe]:
    for word in wanted("bind", candidates.BIND):
        name, _, count = word.partition(":")
        yield "bind", _counted(name, count), f"frontend x\n  bind 127.0.0.1:1 ssl {name} {'x ' * int(count)}\n", name
    for word in wanted("server", candidates.SERVER):
        name, _, count = word.partition(":")
        yield "server", _counted(name, count), f"backend x\n  server s 127.0.0.1:1 {name} {'x ' * int(count)}\n", name
    for word in wanted("match", candidates.MATCHES):
        yield "match", word, f"frontend x\n  acl a src -m {word} 1\n", word


def _counted(name: str, count: str) -> str:
    return f"{name} +{count}" if count != "0" else name


class _Prober:
    """Asks a binary about one line after the other; may be used by several threads."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        # An old version does not know this keyword.
        self._preamble = PREAMBLE
        if self.knows(("", "", f"{PREAMBLE}{DEPRECATED}", "expose-deprecated-directives")):
            self._preamble += DEPRECATED

    def knows(self, probe: _Probe) -> bool:
        """Say whether the last line of the probe's text is understood, if not complete."""
        text = self._preamble + probe[2]
        path = self._folder / f"{abs(hash(probe))}.cfg"
        path.write_text(text)
        command: list[str | Path] = [self._binary, "-c", "-f", path]
        run = subprocess.run(command, capture_output=True, check=False, text=True, timeout=30, env={}, cwd=self._folder)
        line = text.count("\n")
        said = [
            message
            for message in (run.stdout + run.stderr).splitlines()
            if "[ALERT]" in message and re.search(rf":{line}\] ?:", message)
        ]
        rejected = re.compile(_REJECTED.replace("{}", re.escape(probe[3])), re.IGNORECASE)
        return not any(rejected.search(message) for message in said)


def main(versions: Iterable[str]) -> None:
    """Read the binaries of *versions* and write the tables."""
    known = {version: read_groups(provide(version) / "haproxy") for version in versions}
    # A line for each group and set of versions, so that a difference is readable.
    groups = ",\n".join(
        f" {msgspec.json.encode(group).decode()}: {{\n"
        + ",\n".join(f'  "{owners}": {msgspec.json.encode(words).decode()}' for owners, words in by_owner.items())
        + "\n }"
        for group, by_owner in merge(known).items()
    )
    names = msgspec.json.encode(list(known)).decode()
    TABLE.write_text(f'{{"versions": {names},\n"groups": {{\n{groups}\n}}}}\n')
    print(f"wrote {TABLE.name}: { ({version: sum(map(len, one.values())) for version, one in known.items()}) }")


if __name__ == "__main__":
    main(sys.argv[1:] or ["2.8", "3.2", "3.4"])
