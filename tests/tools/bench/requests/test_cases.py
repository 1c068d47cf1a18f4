"""Cases of the request benchmark, and the objects that route them."""

from tools.bench.requests.cases import ANNOTATIONS, CASES, FLOOR_CASE, GATEWAY, case_objects
from tools.bench.requests.sites import PLACE, SITES
from tools.bench.rig.objects import host_of


def test_names_of_cases_are_unique_and_include_the_floor() -> None:
    names = [case.name for case in CASES]

    assert len(set(names)) == len(names)
    assert FLOOR_CASE in names
    assert {case.site for case in CASES} == set(SITES)


def test_each_case_of_a_rendered_site_has_an_object_with_its_host() -> None:
    routed = {
        site: {str(each["metadata"]["name"]) for each in case_objects(PLACE, site)} for site in (ANNOTATIONS, GATEWAY)
    }

    for site, names in routed.items():
        assert names == {case.slug for case in CASES if case.site == site}


def test_a_request_is_complete_and_names_the_host_of_its_object() -> None:
    for case in CASES:
        lines = case.message.decode().split("\r\n")
        assert lines[0].endswith(" HTTP/1.1")
        assert f"Host: {host_of(case.slug)}" in lines
        assert lines[-2:] == ["", ""]
