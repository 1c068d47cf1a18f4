"""A search finds a text in haproxy.cfg and all files, and nothing in Secrets."""

import msgspec

from haptic_trio.chunked import Paged, Piece
from haptic_trio.explain.answers import MOST_HITS
from haptic_trio.explain.search import MOST_CONTEXT, search
from haptic_trio.templating.values.subjects import Origin, RenderedText, Subject
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


def test_pages_of_a_search_follow_each_other_and_have_the_lines_around_each_hit() -> None:
    site = site_of(*(ingress(f"web{number}", rule(f"w{number}.test", path("/", "web"))) for number in range(9)))
    lines = site.lines_of("maps/path-prefix.map")

    pages = [search(site, ".test", context=2, offset=offset, limit=4) for offset in (0, 4, 8, 12)]

    numbers = [[hit.line.line for hit in page.hits] for page in pages]
    assert [len(found) for found in numbers] == [4, 4, 1, 0]
    assert [line for found in numbers for line in found] == sorted({line for found in numbers for line in found})
    assert {(page.count, page.offset) for page in pages} == {(9, 0), (9, 4), (9, 8), (9, 12)}
    for hit in pages[1].hits:
        assert [one.text for one in hit.before] == lines[hit.line.line - 3 : hit.line.line - 1]
        assert [one.text for one in hit.after] == lines[hit.line.line : hit.line.line + 2]
    whole = search(site, "w4.test", context=100).hits[0]
    assert len(whole.before) <= MOST_CONTEXT
    assert whole.after[-1].line == len(lines)


def test_context_of_a_hit_is_redacted_where_it_derives_from_a_secret() -> None:
    site = site_of(ingress("web", rule("web.test", path("/", "web"))))
    origin = Origin("password", Subject("Secret", "default", "login", "1"), "joined.map", 1)
    joined = RenderedText(Paged.of([Piece("user hunter2\n", origin), Piece("needle\n"), Piece("x hunter2\n", origin)]))
    site = msgspec.structs.replace(site, texts={**site.texts, "maps/joined.map": joined})

    (hit,) = search(site, "needle", context=5).hits

    assert [one.is_secret for one in (*hit.before, *hit.after)] == [True, True]
    assert "hunter2" not in str(hit)
    assert search(site, "hunter2").count == 0
