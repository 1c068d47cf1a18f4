"""`haproxy -c` rejects data that is in HAProxy already, and no object is found to be at fault."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.messages import ValidationFailed
from tests.features.harness import Site, controller, ingress, service
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy

WRAPPER = """\
#!/bin/sh
for argument; do
  case "$argument" in
    -c) checks=yes ;;
    */haproxy.cfg) directory=${{argument%/*}} ;;
  esac
done
if [ "$checks" ] && grep -rq {host} "$directory"; then
  echo "[ALERT]    (1) : config : no memory for this map" >&2
  exit 1
fi
exec {binary} "$@"
"""


def make_wrapper(binary: Path, root: Path, host: str) -> Path:
    """Return a program that runs *binary*, whose check rejects each configuration with *host* and names no line."""
    wrapper = root / "haproxy"
    wrapper.write_text(WRAPPER.format(binary=binary, host=host.replace(".", "[.]")))
    wrapper.chmod(0o755)
    return wrapper


EXACT = """\
#!/bin/sh
for argument; do
  case "$argument" in
    -c) checks=yes ;;
    */haproxy.cfg) directory=${{argument%/*}} ;;
  esac
done
if [ "$checks" ] && grep -q bad "$directory/maps/path-exact.map"; then
  echo "[ALERT]    (1) : config : cannot load maps/path-exact.map" >&2
  exit 1
fi
exec {binary} "$@"
"""


async def test_independent_data_stays_when_the_check_names_a_file(
    site: Site, haproxy_binary: Path, tmp_path: Path
) -> None:
    binary = tmp_path / "haproxy"
    binary.write_text(EXACT.format(binary=haproxy_binary))
    binary.chmod(0o755)

    def exact(name: str) -> dict[str, Any]:
        made = ingress(name, f"{name}.localhost", "web")
        made["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = "Exact"
        return made

    async with backend("one") as one:
        site.write_service("web", one)
        site.write("web", exact("web"))
        async with controller(site, binary) as running:
            await running.serves(site, "web.localhost", "one")
            await running.quiet()

            # One reconciliation: an Ingress whose path is exact, and another one.
            site.write("both", exact("bad"), ingress("good", "good.localhost", "web"))
            await running.serves(site, "good.localhost", "one")
            await running.wait(ValidationFailed)
            await running.answers(site, "bad.localhost", 404)
            await running.quiet()

            assert await site.get("good.localhost") == (200, "one")
            assert await running.reloads() == 0


async def test_rollback_brings_no_server_back_that_is_gone(site: Site, haproxy_binary: Path, tmp_path: Path) -> None:
    binary = make_wrapper(haproxy_binary, tmp_path, "bad.localhost")
    async with backend("one") as one, backend("two") as two, backend("three") as three:
        site.write("services", *service("web", one), *service("shop", one))
        for name in ("web", "shop"):
            site.write_ingress(name, f"{name}.localhost", name)
        async with controller(site, binary) as running:
            await running.serves(site, "web.localhost", "one")
            await running.quiet()

            # One reconciliation: both Services move, and an Ingress appears.
            bad = ingress("bad", "bad.localhost", "web")
            site.write("services", *service("web", two), *service("shop", two), bad)
            await running.serves(site, "bad.localhost", "two")
            await running.wait(ValidationFailed)
            await running.answers(site, "bad.localhost", 404)
            await running.quiet()

            for name in ("web", "shop"):
                assert await site.get(f"{name}.localhost") == (200, "two")
            # Later moves continue from there, and are not undone either.
            since = len(running.events)
            site.write("services", *service("web", three), *service("shop", two), bad)
            await running.wait(ValidationFailed, since=since)
            await running.answers(site, "bad.localhost", 404)
            await running.quiet()
            assert await site.get("web.localhost") == (200, "three")
            assert await site.get("shop.localhost") == (200, "two")
            assert await running.reloads() == 0
