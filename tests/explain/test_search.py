"""A search finds a text in haproxy.cfg and all files, and nothing in Secrets."""

from haptic_trio.explain.answers import MOST_HITS
from haptic_trio.explain.search import search
from tests.explain.sites import secret, site_of
from tests.support.kubernetes import ingress, path, rule, service


def test_search_covers_all_files_and_ignores_case() -> None:
    site = site_of(ingress("web", rule("web.example.com", path("/", "web"))), service("web"))

    answer = search(site, "WEB.Example.com")

    assert [hit.line.path for hit in answer.hits] == ["maps/path-prefix.map"]
    assert str(answer.hits[0].made_by.object) == "Ingress default/web"
    assert answer.count == 1
    assert search(site, "nowhere").hits == ()


def test_search_does_not_read_secrets() -> None:
    site = site_of(secret("web", "web.example.com"))

    assert all("BEGIN" not in hit.line.text for hit in search(site, "PRIVATE KEY").hits)
    assert search(site, "PRIVATE KEY").count == 0


def test_search_lists_the_first_hits_and_counts_the_others() -> None:
    site = site_of(
        *(ingress(f"web{number}", rule(f"w{number}.example.com", path("/", "web"))) for number in range(MOST_HITS + 5))
    )

    answer = search(site, ".example.com")

    assert (len(answer.hits), answer.count) == (MOST_HITS, MOST_HITS + 5)
