"""Objects that share a file which HAProxy rejects: all are served by their last good versions, and return with it."""

from pathlib import Path

import pytest

from haptic_trio.k8s.resource import Resource
from tests.support.components.pipeline import HEAD, Bench
from tests.support.kubernetes import service

pytestmark = pytest.mark.haproxy
TEMPLATE = HEAD + (
    "{% each user in resources.services if user.spec.source is defined %}\n"
    "backend {{ ident(user.metadata.name) }}\n"
    "{% for source in resources.services.get(user.metadata.namespace, user.spec.source) %}\n"
    "    http-request deny if { src -f {{ files.file('denied.list', source.spec.denied, of=source) }} }\n"
    "{% endfor %}\n"
    "{% endeach %}\n"
)
REJECTED = "no address\n"


def source(denied: str, version: int) -> Resource:
    found = service("source", denied=denied)
    return {**found, "metadata": {**found["metadata"], "resourceVersion": str(version)}}


def denied(text: dict[str, str]) -> list[str]:
    return [content for name, content in text.items() if name.endswith("denied.list")]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("healed", ["192.0.2.1\n", "192.0.2.2\n"])
async def test_users_of_a_file_that_haproxy_rejects_keep_the_good_one_and_return(
    haproxy_binary: Path, count: int, healed: str
) -> None:
    users = [f"user-{number}" for number in range(count)]
    bench = Bench(haproxy_binary, TEMPLATE)

    async def served(*resources: Resource) -> tuple[list[str], list[str], dict[str, bool]]:
        bench.put(*resources)
        generation = (await bench.run()).generation
        backends = [line.split()[1] for line in generation.config.text.splitlines() if line.startswith("backend ")]
        held = {one.ref.name: one.has_fallback for one in bench.quarantine.objects}
        return backends, denied({path: file.content.decode() for path, file in generation.files.items()}), held

    first = await served(source("192.0.2.1\n", 1), *(service(name, source="source") for name in users))
    assert first == (users, ["192.0.2.1\n"], {})

    assert await served(source(REJECTED, 2)) == (users, ["192.0.2.1\n"], dict.fromkeys(users, True))
    assert await served(service("other")) == (users, ["192.0.2.1\n"], dict.fromkeys(users, True))
    assert await served(source(healed, 3)) == (users, [healed], {})
