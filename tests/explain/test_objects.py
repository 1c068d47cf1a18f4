"""The explanation of an object lists its output, the fragments that look it up, and its problems."""

from haptic_trio.explain.answers import HostAnswer, LineAnswer, ObjectAnswer, RouteAnswer
from haptic_trio.explain.resolve import explain
from haptic_trio.explain.site import Site
from tests.explain.sites import Workshop, number_of, secret, site_of
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, ingress_class, path, rule, service


def about(site: Site, target: str) -> ObjectAnswer:
    answer = explain(site, target)
    assert isinstance(answer, ObjectAnswer)
    return answer


def test_an_object_names_its_lines_files_and_sections() -> None:
    site = site_of(
        ingress("i", rule("a.example.com", path("/", "web")), tls=[{"secretName": "tls"}]),
        service("web"),
        endpoint_slice("web", endpoint("10.0.0.1"), ports=80),
        secret("tls", "a.example.com"),
    )
    of_service, of_secret = about(site, "Service web"), about(site, "Secret tls")

    (product,) = of_service.products
    assert product.sections == ("backend default_web_80",)
    assert [line.text.strip() for line in product.lines] == [
        "backend default_web_80 from profile-http",
        "server s1 10.0.0.1:80",
        "",
    ]
    (certificate,) = of_secret.products
    assert (certificate.files, [line.text for line in certificate.lines]) == (
        ("ssl/default_tls.pem",),
        ["ssl/default_tls.pem a.example.com"],
    )


def test_an_object_without_output_lists_its_dependents() -> None:
    site = site_of(
        ingress("i", rule("a.example.com", path("/", "web", "http")), ingress_class="other"),
        ingress_class("other", "haptic-trio/ingress-controller"),
        service("web", {"name": "http", "port": 80}),
        endpoint_slice("web", endpoint("10.0.0.1"), ports={"http": 80}),
    )
    of_slice, of_class = about(site, "EndpointSlice web-1"), about(site, "IngressClass other")

    assert (of_slice.products, of_class.products) == ((), ())
    (use,) = of_slice.used_by
    assert (use.fragment, [str(one) for one in use.objects], use.count) == (
        "ingress-backends",
        ["Service default/web"],
        1,
    )
    assert use.questions == ("resources.endpointSlices.get('default', 'web')",)
    assert {one.fragment for one in of_class.used_by} >= {"ingress-backends", "ingress-prefix-paths"}


def test_warnings_are_part_of_the_answer_about_an_object() -> None:
    site = site_of(
        ingress("old", rule("a.example.com", path("/", "web"))),
        ingress("young", rule("a.example.com", path("/", "gone")), age=2),
        service("web"),
        endpoint_slice("web", endpoint("10.0.0.1"), ports=80),
    )

    assert about(site, "Ingress old").warnings == ()
    assert about(site, "Ingress young").warnings == (
        (
            "HostPathConflict: the entry a.example.com|/ of maps/path-prefix.map has no effect, "
            "because the entry of Ingress default/old comes first"
        ),
        "ServiceNotFound: the Service default/gone does not exist; requests for it are answered with 503",
    )


def test_an_ingress_of_another_class_has_no_output_and_lists_its_fragments() -> None:
    site = site_of(ingress("i", rule("a.example.com", path("/", "web")), ingress_class="foreign"))

    answer = about(site, "Ingress i")

    assert answer.products == ()
    assert {made_by.fragment for made_by in answer.idle} >= {"ingress-prefix-paths", "ingress-exact-paths"}


def test_a_missing_object_lists_the_fragments_that_look_it_up() -> None:
    site = site_of(ingress("i", rule("a.example.com", path("/", "gone", "http"))))

    answer = about(site, "service default/gone")

    assert (answer.exists, answer.watched_as) == (False, ("services",))
    assert [(use.fragment, str(use.objects[0])) for use in answer.used_by] == [
        ("ingress-prefix-paths", "Ingress default/i")
    ]


def test_a_thousand_users_are_counted_and_few_are_named() -> None:
    ingresses = [ingress(f"i{n}", rule(f"h{n}.example.com", path("/", "web", "http"))) for n in range(1000)]
    site = site_of(*ingresses, service("web", {"name": "http", "port": 80}))

    answer = about(site, "Service web")

    (use,) = [use for use in answer.used_by if use.fragment == "ingress-prefix-paths"]
    assert (use.count, len(use.objects)) == (1000, 10)
    (found,) = [one for one in answer.products[0].depends_on if "ingressesByService" in one.question]
    assert (found.count, len(found.found)) == (1000, 10)


def test_a_rejected_object_has_the_problem_and_no_fallback() -> None:
    site = site_of(ingress("i", rule("a.example.com", path("/a b", "web"))))

    answer = about(site, "Ingress i")

    (problem,) = answer.problems
    assert (problem.fragment, problem.has_fallback) == ("ingress-prefix-paths", False)
    assert problem.place.startswith("ingress-route:")
    assert problem.message == 'spec.rules[0].http.paths[0].path: "/a b" contains a space at character 3'


def test_the_host_of_an_object_that_failed_is_known_and_leads_to_it() -> None:
    site = site_of(ingress("i", rule("a.example.com", path("/a b", "web"))))

    of_host, of_request = explain(site, "a.example.com"), explain(site, "a.example.com/x")

    assert isinstance(of_host, HostAnswer)
    assert isinstance(of_request, RouteAnswer)
    assert (of_host.entries, of_request.status) == ((), 404)
    assert [str(problem.object) for problem in (*of_host.problems, *of_request.problems)] == ["Ingress default/i"] * 2


def test_a_fallback_line_has_the_problem_of_the_newer_version() -> None:
    workshop = Workshop([ingress("i", rule("a.example.com", path("/a", "web")))])
    workshop.site()
    broken = ingress("i", rule("a.example.com", path("/a b", "web")))
    broken["metadata"]["resourceVersion"] = "2"
    workshop.put(broken)
    site = workshop.site()

    line = explain(
        site, f"maps/path-prefix.map:{number_of(site, 'maps/path-prefix.map', 'a.example.com|/a/ default_web_80')}"
    )
    request = explain(site, "a.example.com/a")

    assert isinstance(line, LineAnswer)
    assert line.made_by.object is not None
    assert line.made_by.object.resource_version == "2"
    assert [problem.has_fallback for problem in line.problems] == [True]
    assert isinstance(request, RouteAnswer)
    assert (request.backend, [problem.has_fallback for problem in request.problems]) == ("default_web_80", [True])
