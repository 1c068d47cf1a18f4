"""Assertions of validation tests: one struct for each `type`."""

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Times = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
Rounds = Annotated[int, msgspec.Meta(ge=1, le=20)]
Status = Annotated[int, msgspec.Meta(ge=100, le=599)]
AnyPort = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class _Assertion(_Part, frozen=True, tag_field="type"):
    description: str = ""
    """Purpose of the assertion; shown in reports instead of a summary of the fields."""


class _TextAssertion(_Assertion, frozen=True):
    target: str = "haproxy.cfg"
    """`haproxy.cfg`, or another file by its path, such as `maps/host.map`, or by its name alone."""
    section: str = ""
    """Look at this section of haproxy.cfg only, such as `backend web` or `global`."""
    text: str = ""
    """Look for exactly this text."""
    pattern: str = ""
    """Look for this regular expression instead; `^` and `$` are ends of lines."""


class HaproxyValid(_Assertion, frozen=True, tag="haproxy_valid"):
    """Our own parser and `haproxy -c` accept the configuration, and no object was left out."""


class Contains(_TextAssertion, frozen=True, tag="contains"):
    """A file contains a text."""


class NotContains(_TextAssertion, frozen=True, tag="not_contains"):
    """A file does not contain a text; a file that is not there contains nothing."""


class MatchCount(_TextAssertion, frozen=True, kw_only=True, tag="match_count"):
    """A file contains a text a number of times, without overlaps."""

    count: Count
    """Number of matches."""


class Equals(_Assertion, frozen=True, kw_only=True, tag="equals"):
    """A file, or a section of haproxy.cfg, is a text; spaces at the ends of lines and blank lines at the end do not
    count. `haptic-trio test --update` writes what is there now into `expected`."""

    target: str = "haproxy.cfg"
    """`haproxy.cfg`, or another file by its path, such as `maps/host.map`, or by its name alone."""
    section: str = ""
    """Look at this section of haproxy.cfg only, such as `backend web` or `global`."""
    expected: str
    """The text."""


class JsonPathHolds(_Assertion, frozen=True, kw_only=True, tag="jsonpath"):
    """A JSONPath selects values in what the templates see: variables by name, objects under `resources.<name>`."""

    path: str
    """The JSONPath (RFC 9535), such as `resources.ingresses[*].metadata.name`."""
    expected: list[Any]
    """All values that it selects, in order."""


class MapEntry(_Assertion, frozen=True, kw_only=True, tag="map_entry"):
    """A map file has an entry."""

    map: str
    """The file, by its path or by its name alone."""
    key: str
    """The key; of several lines with it the first one counts."""
    value: str = ""
    """Its value; empty: any."""
    absent: bool = False
    """There must be no such key instead."""


class Deterministic(_Assertion, frozen=True, tag="deterministic"):
    """A second render with the objects in another order gives the same bytes."""

    rounds: Rounds = 2
    """Number of other orders to try."""


class RenderingError(_Assertion, frozen=True, tag="rendering_error"):
    """An object cannot be rendered and is left out, or the whole render fails."""

    object: str = ""
    """The object, such as `Ingress default/web`; empty: any object, or the whole render."""
    text: str = ""
    """Its message contains exactly this text."""
    pattern: str = ""
    """Its message contains this regular expression instead."""


class PlanOutcome(StrEnum):
    """Cost of a change."""

    NONE = "none"
    RUNTIME = "runtime"
    RELOAD = "reload"


class PlanIs(_Assertion, frozen=True, kw_only=True, tag="plan"):
    """Operations that lead here from the state before: that of `previousFixtures`, or of `currentConfig`."""

    outcome: PlanOutcome
    """`none`: nothing is sent to HAProxy; `runtime`: the running process takes the change; `reload`: it reloads."""
    haproxy_version: str = "2.8"
    """The version of the HAProxy that runs, such as `3.4`: a newer one takes more without a reload."""
    operations: list[str] = []
    """The kinds of all runtime operations, such as `AddServer`, each once, in any order; empty: any."""
    text: str = ""
    """A reason of the reload contains exactly this text."""
    pattern: str = ""
    """A reason of the reload contains this regular expression instead."""


class Request(_Part, frozen=True):
    """Request to send."""

    method: str = "GET"
    """The method."""
    host: str = ""
    """The Host header; empty: none, as in HTTP/1.0."""
    path: str = "/"
    """Path and query."""
    headers: dict[str, str] = {}
    """More headers."""
    body: str = ""
    """The body."""
    port: AnyPort = 0
    """The port that a `bind` names; 0: the first one with TLS or without, as `tls` says."""
    tls: bool = False
    """Speak TLS. The certificate is not verified; see `expect.certificate`."""
    sni: str = ""
    """The server name in the TLS handshake; empty: the host."""
    source: str = "127.0.0.1"
    """The client's address as HAProxy sees it."""
    times: Times = 1
    """Send it so many times, each on a connection of its own; what is expected holds for each."""


class Answer(_Part, frozen=True):
    """Answer of the servers."""

    status: Status = 200
    """The status."""
    headers: dict[str, str] = {}
    """More headers."""
    body: str = ""
    """The body."""


class Received(_Part, frozen=True):
    """Request that the server receives."""

    method: str = ""
    """The method; empty: any."""
    path: str = ""
    """Path and query; empty: any."""
    headers: dict[str, str] = {}
    """Headers with their values, `Host` among them."""
    absent_headers: list[str] = []
    """Headers that must not arrive."""


class Expect(_Part, frozen=True):
    """Expected answer, and the server that must have sent it."""

    status: Annotated[int, msgspec.Meta(ge=0, le=599)] = 200
    """The status; 0: HAProxy closes the connection or rejects the handshake."""
    headers: dict[str, str] = {}
    """Headers with their values."""
    absent_headers: list[str] = []
    """Headers that must not come back."""
    body: str = ""
    """The body contains this text."""
    backend: str = ""
    """The backend of haproxy.cfg whose server answered."""
    server: str = ""
    """The name of that server."""
    endpoint: str = ""
    """Its address in haproxy.cfg, such as `10.0.0.1:8080`."""
    endpoints: list[str] = []
    """The addresses of all servers that answered, over all `times`, in any order."""
    by_haproxy: bool = False
    """HAProxy itself answers: nothing reaches a server."""
    received: Received = Received()
    """Request that the server receives."""
    certificate: str = ""
    """A DNS name of the certificate that HAProxy presents."""


class Behaviour(_Assertion, frozen=True, kw_only=True, tag="behaviour"):
    """A real HAProxy with this configuration answers a request as expected.

    It listens on private addresses. Each server is replaced by a test server, which answers as `answer` says.
    """

    request: Request
    """Request to send."""
    answer: Answer = Answer()
    """Answer of the servers."""
    expect: Expect = Expect()
    """Expected answer."""


Assertion: TypeAlias = (
    HaproxyValid
    | Contains
    | NotContains
    | MatchCount
    | Equals
    | JsonPathHolds
    | MapEntry
    | Deterministic
    | RenderingError
    | PlanIs
    | Behaviour
)

Needle: TypeAlias = Contains | NotContains | MatchCount | RenderingError | PlanIs
"""Assertions with `text` and `pattern`, which exclude each other."""

TYPES: tuple[type[Assertion], ...] = (
    HaproxyValid,
    Contains,
    NotContains,
    MatchCount,
    Equals,
    JsonPathHolds,
    MapEntry,
    Deterministic,
    RenderingError,
    PlanIs,
    Behaviour,
)


def type_of(assertion: Assertion) -> str:
    """Return what `type` says of *assertion*, such as `haproxy_valid`."""
    return str(assertion.__struct_config__.tag)
