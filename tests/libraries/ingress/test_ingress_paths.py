"""A real HAProxy routes paths by the rules of the Ingress API."""

import pytest

from tests.libraries.conftest import Cluster
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import ask, serving

pytestmark = pytest.mark.haproxy

SERVICES = ("foo", "slash", "bar", "deep", "root", "exact")


def backends(ports: dict[str, int]) -> list[dict[str, object]]:
    return [
        item
        for name, port in ports.items()
        for item in (service(name), endpoint_slice(name, endpoint("127.0.0.1"), ports=port))
    ]


EXACT = [path("/foo", "foo", kind="Exact"), path("/bar/", "slash", kind="Exact")]
PREFIX = [path("/foo", "foo"), path("/aaa/bbb", "bar"), path("/aaa", "deep")]
SLASH = [path("/foo/", "foo"), path("/aaa/bbb/", "bar")]
BOTH = [path("/foo", "foo"), path("/foo", "exact", kind="Exact"), path("/", "root")]
TWO = [path("/foo", "foo", kind="Exact"), path("/foo/", "slash", kind="Exact")]


@pytest.mark.parametrize(
    ("paths", "requested", "expected"),
    [
        pytest.param(EXACT, "/foo", "foo", id="exact matches"),
        pytest.param(EXACT, "/foo?a=/b", "foo", id="exact ignores the query"),
        pytest.param(EXACT, "/foo/", 404, id="exact is not the path with a slash"),
        pytest.param(EXACT, "/FOO", 404, id="exact is case sensitive"),
        pytest.param(EXACT, "/bar", 404, id="exact with a slash is not the path without"),
        pytest.param(EXACT, "/bar/", "slash", id="exact with a slash matches"),
        pytest.param(EXACT, "/other", 404, id="exact is no other label"),
        pytest.param(EXACT, "/foo/x", 404, id="exact has no subpaths"),
        pytest.param(PREFIX, "/foo", "foo", id="prefix matches"),
        pytest.param(PREFIX, "/foo/", "foo", id="prefix ignores a trailing slash of the request"),
        pytest.param(PREFIX, "/FOO", 404, id="prefix is case sensitive"),
        pytest.param(PREFIX, "/aaa/bbb", "bar", id="longest prefix wins"),
        pytest.param(PREFIX, "/aaa/ccc", "deep", id="shorter prefix takes the rest"),
        pytest.param(PREFIX, "/aaa/bbb/ccc/ddd", "bar", id="prefix has subpaths"),
        pytest.param(PREFIX, "/aaa/bbbccc", "deep", id="prefix counts whole labels"),
        pytest.param(PREFIX, "/foobar", 404, id="prefix is no prefix of a label"),
        pytest.param(SLASH, "/foo", "foo", id="prefix with a slash matches the path without"),
        pytest.param(SLASH, "/foo/", "foo", id="prefix with a slash matches the path with"),
        pytest.param(SLASH, "/aaa/bbb/ccc", "bar", id="prefix with a slash has subpaths"),
        pytest.param(SLASH, "/aaa/bbbccc", 404, id="prefix with a slash counts whole labels"),
        pytest.param(BOTH, "/foo", "exact", id="exact beats prefix"),
        pytest.param(BOTH, "/foo/x", "foo", id="prefix serves what exact does not"),
        pytest.param(BOTH, "/anything/else", "root", id="the root prefix matches all"),
        pytest.param(BOTH, "/", "root", id="the root prefix matches the root"),
        pytest.param(TWO, "/foo", "foo", id="of two exact paths the one without slash"),
        pytest.param(TWO, "/foo/", "slash", id="of two exact paths the one with slash"),
    ],
)
def test_path(cluster: Cluster, paths: list[dict[str, object]], requested: str, expected: str | int) -> None:
    with serving(*SERVICES) as ports:
        cluster.serve(ingress("web", rule("a.example.com", *paths)), *backends(ports))

        answer = ask(cluster.http_port, "a.example.com", requested)

    assert (answer.body.split("\n")[0] if answer.status == 200 else answer.status) == expected
