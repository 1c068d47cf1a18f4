"""A directory of manifests keeps real HAProxy processes in step."""

from pathlib import Path

import pytest
import trio

from haptic_trio.commentator import LOG_LINES
from haptic_trio.messages import (
    ConfigInvalid,
    InstanceDeployed,
    IterationEnded,
    ProblemsReported,
    Quarantined,
    Released,
    StageReached,
    WarningRaised,
)
from tests.features.harness import Site, Traffic, controller, serving_web
from tests.features.harness import service as make_service
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy


def is_last_stage(event: StageReached) -> bool:
    """Whether the iteration is completely up."""
    return event.stage == 5


async def test_stages_are_reached_in_order_and_then_traffic_flows(site: Site, haproxy_binary: Path) -> None:
    async with backend("hello") as port, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        ready = await running.wait(StageReached, is_last_stage)
        await running.wait(InstanceDeployed)

        stages = [(event.stage, event.name) for event in running.events.all(StageReached)]
        assert stages == [
            (1, "load_config"),
            (2, "components"),
            (3, "watch_resources"),
            (4, "watch_config"),
            (5, "reconcile"),
        ]
        assert ready.iteration == 1
        await running.serves(site, "web.localhost", "hello")


async def test_endpoint_change_reaches_traffic_without_a_reload(site: Site, haproxy_binary: Path) -> None:
    async with backend("one") as one, backend("two") as two, controller(site, haproxy_binary) as running:
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")
        await running.serves(site, "web.localhost", "one")
        before = await running.reloads()

        site.write_service("web", two)
        await running.serves(site, "web.localhost", "two")

        assert await running.reloads() == before


async def test_new_path_to_a_known_service_is_map_data_without_a_reload(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        before = await running.reloads()

        site.write_ingress("more", "more.localhost", "web", "/shop")
        await running.serves(site, "more.localhost", "one", "/shop/cart")
        assert (await site.get("more.localhost", "/shopping"))[0] == 404

        site.remove("ingress-more")
        await running.answers(site, "more.localhost", 404, "/shop/cart")
        assert await running.reloads() == before


async def test_two_instances_run_side_by_side_and_both_follow(site: Site, haproxy_binary: Path) -> None:
    async with backend("one") as one, controller(site, haproxy_binary, instances=2) as running:
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")
        await running.serves(site, "web.localhost", "one")

        infos = await running.instances(2)
        assert len({info.pid for info in infos}) == 2
        assert len({info.generation for info in infos}) == 1


async def test_broken_ingress_is_quarantined_and_the_others_are_served(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        site.write_ingress("evil", "evil.localhost", "web", "/a\n    http-request deny")
        quarantined = await running.wait(Quarantined)
        site.write_ingress("other", "other.localhost", "web")
        await running.serves(site, "other.localhost", "one")

        assert str(quarantined.ref) == "Ingress default/evil"
        assert quarantined.problem.source.endswith("/ingress-evil.yaml")
        assert quarantined.problem.line == 1
        level, _, values = LOG_LINES[Quarantined](quarantined)
        assert level == "warning"
        assert values["problem"].startswith(f"{quarantined.problem.source}:1: spec.rules[0].http.paths[0].path: ")
        assert not quarantined.has_fallback
        assert (await site.get("evil.localhost"))[0] == 404

        site.write_ingress("evil", "evil.localhost", "web", "/a")
        await running.wait(Released)
        await running.serves(site, "evil.localhost", "one", "/a")


async def test_warning_about_an_object_names_its_file(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        site.write_ingress("lost", "lost.localhost", "nowhere")
        raised = await running.wait(WarningRaised, lambda event: event.warning.reason == "ServiceNotFound")

        assert raised.place.endswith("/ingress-lost.yaml:1")
        assert LOG_LINES[WarningRaised](raised)[2]["problem"] == f"{raised.place}: {raised.warning.message}"


async def test_ingress_that_breaks_is_served_as_it_was_last_good(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        site.write_ingress("web", "web.localhost", "web", "/ # comment")
        quarantined = await running.wait(Quarantined)
        site.write_ingress("other", "other.localhost", "web")
        await running.serves(site, "other.localhost", "one")

        assert quarantined.has_fallback
        assert await site.get("web.localhost") == (200, "one")


async def test_half_written_file_is_reported_with_its_place_and_changes_nothing(
    site: Site, haproxy_binary: Path
) -> None:
    async with serving_web(site, haproxy_binary) as running:
        site.write("ingress-web", "apiVersion: networking.k8s.io/v1\nkind: [Ingress\n")
        report = await running.wait(ProblemsReported, lambda event: bool(event.problems))

        assert report.problems[0].source.endswith("ingress-web.yaml")
        assert report.problems[0].line >= 2
        assert await site.get("web.localhost") == (200, "one")


async def test_configuration_that_haproxy_rejects_is_not_deployed_and_its_place_is_named(
    site: Site, haproxy_binary: Path
) -> None:
    async with serving_web(site, haproxy_binary) as running:
        site.write_config(templateSnippets={"global-broken": {"template": "    tune.vars.txn-max-size many\n"}})
        failed = await running.wait(ConfigInvalid)

        assert running.events.all(IterationEnded) == []
        assert "txn-max-size" in str(failed.problems[0])
        assert failed.problems[0].line > 0
        assert await site.get("web.localhost") == (200, "one")
        assert [info.pid > 0 for info in await running.describe()] == [True]


async def test_template_that_fails_is_reported_with_template_and_line(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        site.write_config(templateSnippets={"global-broken": {"template": "    # fine\n    {{ nothing.here }}\n"}})
        failed = await running.wait(ConfigInvalid)

        assert (failed.problems[0].source, failed.problems[0].line) == ("global-broken", 2)
        assert await site.get("web.localhost") == (200, "one")


async def test_invalid_configmap_is_reported_with_all_problems_and_changes_nothing(
    site: Site, haproxy_binary: Path
) -> None:
    async with serving_web(site, haproxy_binary) as running:
        site.write_raw_config("reconciler:\n  debounceIntervall: 5s\ndataplane:\n  port: many\n")
        invalid = await running.wait(ConfigInvalid)

        assert {(problem.path, problem.line) for problem in invalid.problems} == {
            ("reconciler.debounceIntervall", 2),
            ("dataplane.port", 4),
        }
        assert running.iteration is not None
        assert running.iteration.number == 1
        assert await site.get("web.localhost") == (200, "one")


async def test_configmap_changes_under_traffic_lose_no_request(site: Site, haproxy_binary: Path) -> None:
    traffic = Traffic()
    async with serving_web(site, haproxy_binary) as running:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic.run, site, "web.localhost")
            before = await running.reloads()
            for number in range(2, 22):
                since = len(running.events)
                # Every other change alters what HAProxy gets, so that reloads are part of it.
                site.write_config(
                    reconciler={"debounceInterval": f"{number}ms"},
                    templateSnippets={"global-number": {"template": f"    maxconn {2000 + number // 2}\n"}},
                )
                reached = await running.wait(StageReached, is_last_stage, since=since)
                assert reached.iteration == number
                await running.settled(since=since, iteration=number)
                await traffic.wait_for(3)
            nursery.cancel_scope.cancel()

        assert traffic.failures == []
        assert traffic.answered >= 60
        assert await running.reloads() - before == 10


async def test_template_fault_that_hits_every_object_takes_none_of_them_down(site: Site, haproxy_binary: Path) -> None:
    async with backend("one") as one, controller(site, haproxy_binary) as running:
        site.write_service("web", one)
        for name in ("a", "b"):
            site.write_ingress(name, f"{name}.localhost", "web")
        await running.serves(site, "b.localhost", "one")

        # The library's own snippet, with a slip of the pen.
        template = (
            '{% for service in resources.services.list() %}{% fragment "service-backends" for service %}'
            "{{ service.spec.nothing }}{% endfragment %}{% endfor %}"
        )
        site.write_config(templateSnippets={"backends-ingress": {"template": template}})
        failed = await running.wait(ConfigInvalid)

        assert (failed.problems[0].source, failed.problems[0].line) == ("backends-ingress", 1)
        assert await site.get("a.localhost") == (200, "one")


async def test_broken_dependency_is_bridged_and_its_repair_releases_the_object(
    site: Site, haproxy_binary: Path
) -> None:
    async with backend("two") as two, serving_web(site, haproxy_binary) as running:
        service, endpoints = make_service("web", two)
        endpoints["endpoints"][0]["addresses"] = ["not an address"]
        site.write("service-web", service, endpoints)
        quarantined = await running.wait(Quarantined)
        await running.quiet()

        assert quarantined.has_fallback
        assert await site.get("web.localhost") == (200, "one")

        # Nothing but the slice changes.
        endpoints["endpoints"][0]["addresses"] = ["127.0.0.1"]
        site.write("service-web", service, endpoints)
        await running.wait(Released)
        await running.serves(site, "web.localhost", "two")


async def test_objects_that_are_all_broken_affect_no_others(site: Site, haproxy_binary: Path) -> None:
    for name in ("a", "b"):
        site.write_ingress(name, f"{name}.localhost", "web", "/a\n    http-request deny")
    async with backend("one") as one, controller(site, haproxy_binary) as running:
        await running.wait(Quarantined, lambda event: event.quarantined == 2)
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")

        await running.serves(site, "web.localhost", "one")
