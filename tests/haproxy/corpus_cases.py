"""The corpus: configurations of every section and keyword of HAProxy 2.8 to 3.4, and broken ones, made from structure.

Nothing here is random: the same cases with the same names every time. The
cases in files (`corpus/*.txt`) are written by hand.
"""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from haptic_trio.haproxy.grammar.keywords import key_of
from tests.haproxy.corpus_lines import PLACES, SURROUNDINGS, lines_of

FOLDER: Final = Path(__file__).with_name("corpus")
HEAD: Final = re.compile(r"^== (?P<verdict>valid|invalid|only haproxy|only we): (?P<name>.*)\n", re.MULTILINE)
EXPERIMENTAL: Final = "global\n  expose-experimental-directives\n"


class Case(NamedTuple):
    """A configuration."""

    area: str
    """The kind of section that it is about, or what else."""
    name: str
    """Unique among all cases."""
    text: str


class Sample(NamedTuple):
    """A configuration written by hand, and who accepts it."""

    verdict: str
    name: str
    text: str


def all_cases() -> list[Case]:
    """Return the whole corpus."""
    return [*_from_lines(), *_whole_ones(), *_broken_texts(), *_from_files()]


def samples() -> Iterator[Sample]:
    """Yield what is written in files."""
    for path in (FOLDER / f"{name}.txt" for name in ("valid", "invalid", "differing")):
        corpus = path.read_text()
        heads = list(HEAD.finditer(corpus))
        for head, following in zip(heads, [*heads[1:], None], strict=True):
            text = corpus[head.end() : following.start() if following else len(corpus)]
            if "carriage return" in head["name"]:
                text = text.replace("\n", "\r\n")
            yield Sample(head["verdict"], head["name"], text)


def _from_files() -> Iterator[Case]:
    for sample in samples():
        yield Case("written by hand", f"by hand: {sample.name}", sample.text)


def _from_lines() -> Iterator[Case]:
    seen: set[tuple[str, ...]] = set()
    for place, spot in PLACES.items():
        for line in lines_of(place):
            yield Case(_area(place), f"{place}: {line}", in_place(place, line))
            words = tuple(line.split())
            key = key_of(words)
            if (spot.kind, *key) not in seen and words[0] not in {"no", "default"}:
                seen.add((spot.kind, *key))
                yield from _variations(place, line, key, words)
            if (spot.kind, words[0], "") not in seen:
                seen.add((spot.kind, words[0], ""))
                yield from _misplacements(place, line, words)


def _area(place: str) -> str:
    return {"http": "proxies", "tcp": "proxies"}.get(place, place)


def _variations(place: str, line: str, key: tuple[str, ...], words: tuple[str, ...]) -> Iterator[Case]:
    area = _area(place)
    if len(words) > len(key):
        bare = " ".join(words[: len(key)])
        yield Case(area, f"{place}: {bare} [nothing more]", in_place(place, bare))
    yield Case(area, f"{place}: {line} [one word more]", in_place(place, f"{line} extra"))
    value = next((index for index in range(len(key), len(words)) if re.fullmatch(r"\d+[a-z]{0,2}", words[index])), 0)
    if value:
        wrong = " ".join((*words[:value], re.sub(r"[a-z]*$", "x", words[value]), *words[value + 1 :]))
        yield Case(area, f"{place}: {wrong} [unit]", in_place(place, wrong))


def _misplacements(place: str, line: str, words: tuple[str, ...]) -> Iterator[Case]:
    misspelt = " ".join((words[0] + "q", *words[1:]))
    yield Case(_area(place), f"{place}: {misspelt} [misspelt]", in_place(place, misspelt))
    other = "mailers" if place in {"http", "tcp", "global"} else "userlist" if place != "userlist" else "cache"
    yield Case(_area(place), f"{other}: {line} [of {place}]", in_place(other, line))


def in_place(place: str, line: str) -> str:
    """Return a configuration with *line* in *place*, and all that it may refer to."""
    if place == "global":
        return f"{EXPERIMENTAL}  {line}\n{SURROUNDINGS.lstrip()}"
    return f"{EXPERIMENTAL}{SURROUNDINGS.lstrip()}{PLACES[place].head}  {line}\n"


_QUOTINGS: Final = {
    "plain": "{}",
    "strong quotes": "'{}'",
    "weak quotes": '"{}"',
    "escapes": "\\x61{}",
    "variables": '"${{NOT_SET-{}}}"',
}
_BRANCHES: Final = {
    "no branch": ("", ""),
    "branch taken": (".if 1\n", ".endif\n"),
    "branch not taken": (".if 0\n", ".endif\n"),
    "other branch": (".if 0\nno such word\n.elif !defined(NOT_SET)\n", ".else\nnor this\n.endif\n"),
    "nested branches": (".if 1\n.if !0\n", ".else\nno such word\n.endif\n.endif\n"),
}


def _whole_ones() -> Iterator[Case]:
    """Yield configurations in the shape of real ones, over the ways to write the same."""
    for mode, named, (quoting, quote), (branch, (opening, closing)) in product(
        ("http", "tcp"), (False, True), _QUOTINGS.items(), _BRANCHES.items()
    ):
        base = "base" if named else ""
        origin = " from base" if named else ""
        rules = _ROUTING[mode].replace("$NAME", quote.format("app"))
        app = "aapp" if quoting == "escapes" else "app"
        text = (
            f"global\n  log stdout format raw local0\n  maxconn 1000\n\ndefaults {base}\n  mode {mode}\n  log global\n"
            f"  timeout client 30s\n  timeout server 30s\n  timeout connect 5s\n{opening}"
            f"frontend web{origin}\n  bind 127.0.0.1:18080\n{rules}"
            f"backend {quote.format('app') if quoting != 'variables' else 'app'}{origin}\n  balance roundrobin\n"
            f"  server s1 10.0.0.1:80 weight 10\n  server s2 10.0.0.2:80 weight 20 # the second\n{closing}"
        )
        kind = "with named defaults" if named else "with defaults"
        yield Case("whole", f"whole: {mode} {kind}, {quoting}, {branch} to {app}", text)


_ROUTING: Final = {
    "http": (
        "  acl known hdr(host),map_str(/dev/null,none) -m found\n  acl api path_beg /api\n"
        '  http-request set-header X-Real-IP "%[src]"\n  http-request deny deny_status 404 unless known or api\n'
        "  http-request set-var(txn.backend) req.hdr(host),lower,field(1,:)\n"
        "  use_backend $NAME if api\n  default_backend $NAME\n"
    ),
    "tcp": (
        "  tcp-request inspect-delay 5s\n  tcp-request content accept if { req.ssl_hello_type 1 }\n"
        "  use_backend $NAME if { req.ssl_sni -m end .example.org }\n  default_backend $NAME\n"
    ),
}


def _broken_texts() -> Iterator[Case]:
    for name, text in _BROKEN.items():
        yield Case("text", f"text: {name}", text)
    for count in (60, 63, 64, 65, 66):
        words = " ".join(["w"] * (count - 1))
        yield Case("text", f"text: a line of {count} words", f"global\n  description {words}\n")
    for length in (2000, 2047, 2048, 2049, 20_000):
        yield Case("text", f"text: a line of {length} characters", f"global\n  description {'x' * (length - 14)}\n")
    for opened, closed in product(range(3), repeat=2):
        text = ".if 1\n" * opened + "global\n  maxconn 10\n" + ".endif\n" * closed
        yield Case("text", f"text: {opened} times .if and {closed} times .endif", text)
    for kind in _NAMED.split():
        body = {"cache": "  total-max-size 4\n", "ring": "  size 32768\n", "fcgi-app": "  docroot /\n"}.get(kind, "")
        body = {"log-forward": "  dgram-bind 127.0.0.1:1\n", "acme": "  directory https://x/\n"}.get(kind, body)
        head = f"{EXPERIMENTAL}{kind} "
        yield Case(kind, f"{kind}: twice the same name", f"{head}x\n{body}{kind} x\n{body}")
        yield Case(kind, f"{kind}: two names", f"{head}x y\n{body}")
        yield Case(kind, f"{kind}: no name", f"{head}\n{body}")
        yield Case(kind, f"{kind}: a slash in the name", f"{head}a/b\n{body}")
        yield Case(kind, f"{kind}: from", f"defaults d\n{head}x from d\n{body}")


_NAMED: Final = """
frontend backend listen peers userlist resolvers mailers cache ring http-errors fcgi-app log-forward crt-store
log-profile acme healthcheck
"""
_BROKEN: Final = {
    "empty": "",
    "a comment": "# nothing\n",
    "no line feed at the end": "global\n  maxconn 10",
    "no line feed after a comment": "global\n# x",
    "only a line feed missing": "global",
    "a NUL": "global\n  description a\0b\n",
    "a NUL in a comment": "global\n# a\0b\n",
    "carriage returns": "global\r\n  maxconn 10\r\n",
    "a carriage return inside": "global\n  description a\rb\n",
    "a form feed": "global\n\f maxconn 10\n",
    "unmatched strong quote": "global\n  description 'a\n",
    "unmatched weak quote": 'global\n  description "a\n',
    "quote inside a word": "global\n  description it's\n",
    "a quote closed on the next line": "global\n  description 'a\n  b'\n",
    "a backslash before the line feed": "global\n  description a \\\n  maxconn 10\n",
    "half an escape": "global\n  description \\x4\n",
    "no escape": "global\n  description \\x\n",
    "unknown escape": "global\n  description \\q\n",
    "escape of the NUL": "global\n  description a\\x00b\n",
    "variable without its brace": 'global\n  description "${A"\n',
    "variable without a name": 'global\n  description "$"\n',
    "variable with a digit": 'global\n  description "$1"\n',
    "variable unset": 'global\n  description "$NOT_SET"\n',
    "variable with a default": 'global\n  description "${NOT_SET-some}"\n',
    "variable in strong quotes": "global\n  description '$1'\n",
    "variable outside quotes": "global\n  description $1\n",
    "keyword before any section": "maxconn 10\n",
    "unknown section": "fronted x\n",
    "text that is no UTF-8": "global\n  description \udcff\n",
    "else twice": ".if 1\n.else\n.else\n.endif\n",
    "elif after else": ".if 1\n.else\n.elif 1\n.endif\n",
    "elif alone": ".elif 1\n",
    "else alone": ".else\n",
    "endif with a word": ".if 1\n.endif x\n",
    "if without a condition": ".if\n.endif\n",
    "if with nonsense": ".if no_such_function(x)\n.endif\n",
    "if of a feature": ".if feature(OPENSSL)\n.endif\n",
    "if of a version": ".if version_atleast(9.0)\nno such section\n.endif\n",
    "if of a string": '.if streq("a","a")\n.endif\n',
    "notice": ".notice hello\n",
    "warning": ".warning hello\n",
    "diag": ".diag hello\n",
    "notice of two words": ".notice hello world\n",
    "alert": ".alert hello\n",
    "unknown directive": ".nothing\n",
    "unknown keyword in a branch not taken": "global\n.if 0\n  no-such-word\n.endif\n",
    "unknown keyword in a branch taken": "global\n.if 1\n  no-such-word\n.endif\n",
    "defaults from unknown": "defaults a from b\n",
    "backend from unknown": "backend a from b\n",
    "backend from ambiguous": "defaults d\ndefaults d\nbackend a from d\n",
    "backend from what stands below": "backend a from d\ndefaults d\n",
    "frontend and listen of one name": "frontend a\nlisten a\n  bind 127.0.0.1:1\n",
    "backend and listen of one name": "backend a\nlisten a\n  bind 127.0.0.1:1\n",
    "frontend and backend of one name": "frontend a\nbackend a\n",
    "log-forward and frontend of one name": "log-forward a\n  dgram-bind 127.0.0.1:1\nfrontend a\n",
    "log-forward and backend of one name": "log-forward a\n  dgram-bind 127.0.0.1:1\nbackend a\n",
    "defaults of one name that are in use": "defaults d\nbackend a from d\ndefaults d\n",
    "defaults from defaults of the same name": "defaults d\ndefaults d from d\n",
    "defaults and backend of one name": "defaults a\nbackend a from a\n",
    "frontend and defaults of one name": "frontend a\ndefaults a\n",
    "traces with a name": "traces a\n",
    "twice the same server": "backend a\n  server s 127.0.0.1:1\n  server s 127.0.0.1:2\n",
    "unknown acl": "frontend a\n  mode http\n  http-request deny if nowhere\n",
    "acl below its use": "frontend a\n  mode http\n  http-request deny if x\n  acl x path /\n",
    "acl of the defaults": "defaults d\n  mode http\n  acl x path /\nfrontend a from d\n  http-request deny if x\n",
    "condition without a word": "frontend a\n  mode http\n  http-request deny if\n",
    "condition without a brace": "frontend a\n  mode http\n  http-request deny if { path /\n",
    "condition with an empty brace": "frontend a\n  mode http\n  http-request deny if { }\n",
    "condition with or alone": "frontend a\n  mode http\n  http-request deny if or\n",
    "condition negated twice": "frontend a\n  mode http\n  http-request deny if !!TRUE\n",
    "condition negated apart": "frontend a\n  mode http\n  http-request deny if ! TRUE || ! FALSE\n",
    "condition with and": "frontend a\n  mode http\n  http-request deny if TRUE && TRUE\n",
    "unknown fetch": "frontend a\n  mode http\n  acl x req.hrd(host) a\n",
    "unknown fetch in a format": "frontend a\n  mode http\n  http-request set-header X %[req.hrd(host)]\n",
    "unknown converter": "frontend a\n  mode http\n  acl x req.hdr(host),lwoer a\n",
    "unknown match": "frontend a\n  mode http\n  acl x path -m begin a\n",
    "unknown filter": "frontend a\n  filter nothing\n",
    "percent doubled": "frontend a\n  mode http\n  http-request set-header X %%[nothing]\n",
    "format in a string": "frontend a\n  mode http\n  http-request return content-type a/b string %[nothing]\n",
    "arguments quoted": "frontend a\n  mode http\n  http-request set-header X %[str('a,b'),concat(\\,,txn.x,'\\)')]\n",
    "arguments missing": "frontend a\n  mode http\n  acl x int,add a\n",
    "arguments too many": "frontend a\n  mode http\n  acl x src,lower(1) a\n",
    "converters as words": "frontend a\n  mode http\n  http-request set-var(txn.x) src lower\n",
    "lua without Lua": "frontend a\n  mode http\n  http-request lua.nothing\n",
}
