"""Random HTTPRoutes of several namespaces for shared listeners, and requests that match them, or nearly do."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from haptic_trio.k8s.resource import Resource
from tests.attacks.routes.model import Request
from tests.gateway.objects import route, rule

NAMESPACES: Final = ("na", "nb", "nc")
ROUTES: Final = tuple(f"r{number}" for number in range(10))
RULES: Final = 3
"""At most so many of a route."""
REDIRECTED_TO: Final = ".redirected.test"
"""Follows route and rule in the host of a redirect."""
_LISTENERS: Final = (("shop", "shop.test", 0.5), ("wild", "*.test", 0.4), ("wild-shop", "*.shop.test", 0.3))
"""Listeners beside that for all hosts, and how likely each is."""
_HOSTS: Final = ("shop.test", "*.test", "x.shop.test", "*.shop.test", "")
_REQUESTED_HOSTS: Final = (
    *("shop.test", "shop.test", "x.shop.test", "y.shop.test"),
    *("a.b.shop.test", "other.test", "other.example", "test"),
)
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "OPTIONS")
_SEGMENTS: Final = (
    *("a", "b", "A", "ab", "aB", "a.b", "a~b", "%61", "%41b", "a%20b", "a%C3%A9", "a:b", "a@b", "a%40b", "a+b", "a=b"),
    *("a,b", "a(b)", "a!", "a'", "a*", "*", "a$b", "a&b", "é", "日本", "a|b", "a..b", "...a", "-", "_", "~", "%7E"),
    *("%7e", "a%c3%a9", "a%25b", "a%252Fb", "v1", "v2", "x" * 40, "index.html", "a%26b", "a%2Bb", "%24b", "a%3Ab"),
)
_EXPRESSIONS: Final = ("/a/.*", "/[ab]+", "/v[0-9]+/x", "/a(b)?", "/.*[.]html", "/[^/]+/b", "(?i)/AB", "/a%20b")
_NEAR_EXPRESSIONS: Final = (
    *("/a/b", "/ab", "/aba", "/v1/x", "/AB", "/aB", "/x/y.html", "/b/b", "/a%20b", "/a", "/é/x", "/v12/x"),
)
_AMBIGUOUS_ENDS: Final = (*(";x", "%2Fa", "%5ca", "/a;b/..", "..", "%20", ".", "%3Fa", "%23", ";/a", "%2f..%2fa"),)
_HEADERS: Final = ("x-a", "X-A", "X-b", "x_a", "Accept", "x.a", "version", "X-Tr", "cookie")
_HEADER_VALUES: Final = (
    *("1", "2", "a b", "a,b", "A", "é", '"q"', "a;b", "a&b>c", "%41", "v=1; w=2", "\\", "a'b", "1,2", "2,1", "x*"),
)
_HEADER_EXPRESSIONS: Final = ("[0-9]+", "a.*", ".*", "(?i)a", "1,2")
_PARAMS: Final = ("q", "Q", "a b", "q&r", "é", "x[]", "%71")
_PARAM_VALUES: Final = ("1", "2", "a b", "a+b", "%31", "é", "x&y", "a=b", "A")
_PARAM_EXPRESSIONS: Final = ("[0-9]+", "a.*", ".*")
_OTHER_QUERIES: Final = ("", "x=1", "q", "&", "q=1&&", "=1")
_SLASHES: Final = ("//", "/./", "/zz/../", "/%2e/", "/zz/%2e%2E/")
"""Spellings of a slash."""
_ESCAPED: Final = ' "<>\\^`{|}'


class Inputs:
    """What one seed leads to."""

    def __init__(self, random: Random, port: int) -> None:
        self._random = random
        names: list[dict[str, Any]] = [{"name": "all"}]
        names += [{"name": name, "hostname": host} for name, host, share in _LISTENERS if self._happens(share)]
        admitted = {"allowedRoutes": {"namespaces": {"from": "All"}}}
        self.listeners = [{"port": port, "protocol": "HTTP", **admitted, **one} for one in names]
        paths = [self._path() for _ in range(8)]
        self._paths = [*paths, f"{paths[0].rstrip('/')}/{random.choice(_SEGMENTS)}"]
        """Several routes have each of these."""
        self.routes = [self._route(name) for name in ROUTES]

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def _path(self) -> str:
        return "/" + "/".join(self._random.choice(_SEGMENTS) for _ in range(self._random.randint(0, 3)))

    def _route(self, name: str) -> Resource:
        random = self._random
        rules = [self._rule(f"{name}-{number}") for number in range(random.randint(1, RULES))]
        hosts = random.sample(_HOSTS, random.randint(1, 2))
        section = {"sectionName": random.choice(self.listeners)["name"]} if self._happens(0.2) else {}
        return route(
            name,
            *rules,
            hostnames=() if "" in hosts else hosts,
            namespace=random.choice(NAMESPACES),
            created=f"2026-01-{random.randint(1, 9):02}T00:00:00Z",
            parents=[{"name": "gw", "namespace": "web", **section}],
        )

    def _rule(self, name: str) -> dict[str, Any]:
        """Return a rule that leads to the Service *name*, or redirects to a host of that name."""
        matches = [self._match() for _ in range(self._random.randint(1, 3))]
        if self._happens(0.5):
            return rule(to=name, matches=matches)
        redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": name + REDIRECTED_TO}}
        return {"matches": matches, "filters": [redirect]}

    def _match(self) -> dict[str, Any]:
        random = self._random
        kind = random.choices(("Exact", "PathPrefix", "RegularExpression"), (4, 5, 1))[0]
        value = random.choice(self._paths) if self._happens(0.7) else self._path()
        value += "/" if self._happens(0.2) and value != "/" else ""
        if kind == "RegularExpression":
            value = random.choice(_EXPRESSIONS)
        elif self._happens(0.02):
            value = "/" + "l" * 1_000
        found: dict[str, Any] = {"path": {"type": kind, "value": value}}
        if self._happens(0.25):
            found["method"] = random.choice(_METHODS)
        if self._happens(0.3):
            found["headers"] = self._conditions(_HEADERS, _HEADER_VALUES, _HEADER_EXPRESSIONS)
        if self._happens(0.25):
            found["queryParams"] = self._conditions(_PARAMS, _PARAM_VALUES, _PARAM_EXPRESSIONS)
        return found

    def _conditions(
        self, names: Sequence[str], values: Sequence[str], expressions: Sequence[str]
    ) -> list[dict[str, str]]:
        random, found = self._random, []
        for _ in range(random.randint(1, 3)):
            kind, texts = ("RegularExpression", expressions) if self._happens(0.2) else ("Exact", values)
            found.append({"type": kind, "name": random.choice(names), "value": random.choice(texts)})
        return found

    def request(self) -> Request:
        """Return a request that meets a match of a route, or differs a little from one that does."""
        random = self._random
        match = random.choice(random.choice(random.choice(self.routes)["spec"]["rules"])["matches"])
        if not self._happens(0.75):
            match = {"path": {"type": "Exact", "value": random.choice(self._paths)}}
        path = match["path"]["value"]
        if match["path"]["type"] == "RegularExpression":
            path = random.choice(_NEAR_EXPRESSIONS)
        host = random.choice(_REQUESTED_HOSTS)
        return Request(
            method=match["method"] if "method" in match and self._happens(0.8) else random.choice(_METHODS),
            path=self._near(self._spelled(path)),
            query=self._query(match),
            headers=tuple((name, value.encode().decode("latin-1")) for name, value in self._headers(match)),
            host=host,
            authority=random.choice((host, host.upper(), f"{host}:80", f"{host}.", host.title())),
        )

    def _spelled(self, path: str) -> str:
        """Return another spelling of the same path."""
        found, rest = "", path
        while rest:
            if rest[0] == "%":
                found, rest = found + rest[:3], rest[3:]
            else:
                found, rest = found + self._spelled_character(rest[0]), rest[1:]
        return found

    def _spelled_character(self, character: str) -> str:
        if character == "/":
            return character if self._happens(0.95) else self._random.choice(_SLASHES)
        if not character.isascii() or character in _ESCAPED or self._happens(0.1):
            escape = _escaped(character)
            return escape if self._happens(0.5) else escape.lower()
        return character

    def _near(self, path: str) -> str:
        random, chance = self._random, self._random.random()
        for limit, other in (
            (0.15, f"{path.rstrip('/')}/{_sent(random.choice(_SEGMENTS))}"),
            (0.25, f"{path}/"),
            (0.30, path.rstrip("/") or "/"),
            (0.35, path + random.choice("abzA")),
            (0.40, path if "%" in path else path.swapcase()),
            (0.46, path + random.choice(_AMBIGUOUS_ENDS)),
        ):
            if chance < limit:
                return other
        return path

    def _headers(self, match: Mapping[str, Any]) -> list[tuple[str, str]]:
        random, found = self._random, []
        for condition in match.get("headers", ()):
            name = random.choice((condition["name"], condition["name"].upper(), condition["name"].lower()))
            for value in self._values(condition, _HEADER_VALUES):
                parts = value.split(",", 1) if self._happens(0.15) else [value]
                found += [(name, part) for part in parts]
        if self._happens(0.15):
            found.append((random.choice(_HEADERS), random.choice(_HEADER_VALUES)))
        return found

    def _query(self, match: Mapping[str, Any]) -> str | None:
        found = [
            f"{self._in_query(condition['name'])}={self._in_query(value)}"
            for condition in match.get("queryParams", ())
            for value in self._values(condition, _PARAM_VALUES)
        ]
        self._random.shuffle(found)
        if found:
            return "&".join(found)
        return self._random.choice(_OTHER_QUERIES) if self._happens(0.2) else None

    def _values(self, condition: Mapping[str, str], others: Sequence[str]) -> list[str]:
        """Return none, one or two values, of which the first one often meets *condition*."""
        random = self._random
        if not self._happens(0.85):
            return []
        is_same = condition["type"] == "Exact" and self._happens(0.85)
        first = condition["value"] if is_same else random.choice((*others, "12", "abc"))
        return [first, random.choice(others)] if self._happens(0.1) else [first]

    def _in_query(self, text: str) -> str:
        def written(character: str) -> str:
            if character == " " and self._happens(0.5):
                return "+"
            is_plain = character.isascii() and character.isalnum() and self._happens(0.9)
            return character if is_plain else _escaped(character)

        return "".join(map(written, text))


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _sent(path: str) -> str:
    """Return *path* as a client can send it."""
    return "".join(one if one.isascii() and one not in _ESCAPED else _escaped(one) for one in path)
