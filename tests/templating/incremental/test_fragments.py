"""One object's fault costs its fragment only, and every line knows whose it is."""

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.chunked import Page, Paged, Piece
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.values.marks import is_blank, mark, read_marks, strip_marks, trim
from haptic_trio.templating.values.subjects import Origin, RenderedText, Subject
from tests.templating.rendering import rejected, render_run, resource

BACKENDS = """\
defaults
{% for b in backends %}
{% fragment "backend" for b %}
backend {{ b.metadata.name }}
    server s {{ b.spec.address }}
{% endfragment %}
{% endfor %}
frontend f
"""


def rendered(source: str, **context: object) -> RenderedText:
    """Return the text with its origins."""
    engine = Engine({"main": source})
    return engine.render("main", context, engine.start_run())


def owners(text: RenderedText) -> list[str]:
    """Return whose each line is, by name of the object."""
    found = [text.origin_of(line) for line in range(1, text.text.count("\n") + 1)]
    return [origin.subject.name if origin else "" for origin in found]


def test_a_fragment_that_fails_leaves_everything_else() -> None:
    good, bad = resource("good", spec={"address": "10.0.0.1:80"}), resource("bad", spec={"address": "10.0.0.1 #"})
    text, run = render_run(BACKENDS, backends=[good, bad, good])
    assert text == "defaults\n" + 2 * "backend good\n    server s 10.0.0.1:80\n" + "frontend f\n"
    (rejection,) = run.rejections
    assert rejection.fragment == "backend"
    assert rejection.subject == Subject("Ingress", "default", "bad", "1")
    assert str(rejection.subject) == "Ingress default/bad"
    assert (rejection.problem.source, rejection.problem.line) == ("main", 5)
    assert rejection.problem.subject == "Ingress default/bad"
    assert ">" in rejection.problem.excerpt


def test_any_fault_of_an_object_is_caught() -> None:
    bodies = (
        "{{ o.absent }}", "{{ fail('no') }}", "{{ o.spec + 1 }}", "{{ 1 // 0 }}", "{{ o.spec | port }}",
        "{% include o.spec %}", "{{ [] | first }}", "{{ o | dig('[') }}", "{{ (o.spec)() }}", "{{ o.spec.x.y }}",
        "{{ [1, 'a'] | sort }}", "{% import o.spec as m %}", "{{ paths.map(o.spec) }}", "{{ {}[[]] }}",
    )  # fmt: skip
    for body in bodies:
        text, run = render_run("a{% fragment 'f' for o %}x" + body + "{% endfragment %}b", o=resource(spec="a b"))
        assert text == "ab", body
        assert len(run.rejections) == 1, body


def test_files_of_a_rejected_fragment_are_gone_and_others_stay() -> None:
    source = (
        "{% do files.file('before', 'x') %}{% fragment 'f' for o %}{% do files.file('before', 'x') %}"
        "{% do files.file('within', 'x') %}{{ o.absent }}{% endfragment %}{% do files.file('after', 'x') %}"
    )
    _, run = render_run(source, o=resource())
    assert [file.name for file in run.files.values()] == ["before", "after"]


def test_a_file_belongs_to_the_fragment_that_registered_it() -> None:
    source = (
        "{% do files.file('nobody', 'x') %}"
        "{% fragment 'outer' for a %}{% do files.file('one', 'x') %}"
        "{% fragment 'inner' for b %}{% do files.file('two', 'x\ny\n') %}{% endfragment %}{% endfragment %}"
    )
    _, run = render_run(source, a=resource("a"), b=resource("b"))
    owners = {
        file.name: {origin.subject.name for line in (1, 2) if (origin := file.content.origin_of(line))}
        for file in run.files.values()
    }
    assert owners == {"nobody": set(), "one": {"a"}, "two": {"b"}}


def test_a_fragment_within_a_fragment_fails_alone() -> None:
    source = (
        "{% fragment 'outer' for a %}1{% fragment 'inner' for b %}{{ b.absent }}{% endfragment %}2{% endfragment %}"
        "{% fragment 'outer' for a %}3{% endfragment %}"
    )
    text, run = render_run(source, a=resource("a"), b=resource("b"))
    assert text == "123"
    assert [str(rejection.subject) for rejection in run.rejections] == ["Ingress default/b"]


def test_a_fragment_that_fails_after_an_inner_one_is_left_out_with_it() -> None:
    source = "{% fragment 'o' for a %}1{% fragment 'i' for b %}2{% endfragment %}{{ a.absent }}{% endfragment %}3"
    text, run = render_run(source, a=resource("a"), b=resource("b"))
    assert text == "3"
    assert [rejection.subject.name for rejection in run.rejections] == ["a"]


def test_an_error_outside_of_fragments_fails_the_render_with_the_last_line() -> None:
    problem = rejected("{% fragment 'f' for o %}x{% endfragment %}\n{{ o.absent }}", o=resource())
    assert (problem.line, problem.subject) == (2, "")


def test_the_object_of_a_fragment_must_be_one() -> None:
    assert "not for an object" in rejected("{% fragment 'f' for o %}x{% endfragment %}", o="text").message


def test_variables_of_the_surroundings_are_visible_and_stay_as_they_are() -> None:
    source = "{% set x = 1 %}{% fragment 'f' for o %}{{ x }}{% set x = 2 %}{{ x }}{% endfragment %}{{ x }}"
    assert render_run(source, o=resource())[0] == "121"


def test_every_line_knows_its_object() -> None:
    backends = [resource(name, spec={"address": "10.0.0.1:80"}) for name in ("a", "b")]
    text = rendered(BACKENDS, backends=backends)
    assert owners(text) == ["", "a", "a", "b", "b", ""]
    assert text.origin_of(2) == Origin("backend", Subject("Ingress", "default", "a", "1"), "main", 3, within="main")
    assert text.origin_of(0) is text.origin_of(99) is None


def test_origins_survive_what_moves_text() -> None:
    piece = "{% fragment 'f' for o %}\nx\ny\n{% endfragment %}"
    ways = (
        "{% filter indent(4, true) %}\n" + piece + "{% endfilter %}",
        "{% set t %}\n" + piece + "{% endset %}{{ t }}",
        "{% macro m() %}\n" + piece + "{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}\n" + piece + "{% endcall %}",
        "{% set t %}\n" + piece + "{% endset %}{{ [t] | join }}",
        "{% set t %}\n" + piece + "{% endset %}{{ '' ~ t ~ '' }}",
        "{% set t %}\n\n" + piece + "{% endset %}{{ t | trim }}\n",
    )
    for way in ways:
        text = rendered("before\n" + way + "after\n", o=resource("o"))
        assert [line.strip() for line in text.text.split("\n")] == ["before", "x", "y", "after", ""], way
        assert owners(text) == ["", "o", "o", ""], way


def test_the_innermost_fragment_owns_its_lines() -> None:
    source = "{% fragment 'o' for a %}\n1\n{% fragment 'i' for b %}\n2\n3\n{% endfragment %}\n4\n{% endfragment %}\n5\n"
    assert owners(rendered(source, a=resource("a"), b=resource("b"))) == ["a", "b", "b", "a", ""]


def test_a_line_in_parts_belongs_to_its_first_fragment() -> None:
    source = "use {% fragment 'f' for a %}x{% endfragment %} {% fragment 'f' for b %}y{% endfragment %};\nz\n"
    assert owners(rendered(source, a=resource("a"), b=resource("b"))) == ["a", ""]


def test_files_know_their_origins_too() -> None:
    source = (
        "{% set m %}{% for o in items %}{% fragment 'f' for o %}{{ o.metadata.name }} x\n{% endfragment %}{% endfor %}"
        "{% endset %}{% do files.map('m', m) %}"
    )
    _, run = render_run(source, items=[resource("a"), resource("b")])
    file = run.files["maps/m"]
    assert file.text == "a x\nb x\n"
    assert owners(file.content) == ["a", "b"]


def test_hashes_do_not_see_marks() -> None:
    piece = "{% set t %}{% fragment 'f' for o %}x{% endfragment %}{% endset %}{{ t | hash }} {{ t | b64encode }}"
    text, _ = render_run(piece + "\n" + piece, o=resource())
    first, second = text.split("\n")
    assert first == second == "2d711642b726b044 eA=="


lines = st.text(st.sampled_from("ab \n"), max_size=8)


@given(chunks=st.lists(st.tuples(lines, st.booleans(), lines, lines), max_size=6))
def test_marks_vanish_and_leave_the_text_and_ordered_ranges(chunks: list[tuple[str, bool, str, str]]) -> None:
    origins = [Origin("f", Subject(name=str(number)), "t", number) for number in range(2 * len(chunks))]
    marked = plain = ""
    for number, (before, nested, inside, after) in enumerate(chunks):
        inner = mark(inside, 2 * number + 1) if nested else inside
        marked += before + mark(before + inner + after, 2 * number)
        plain += before + before + inside + after
    text = read_marks(marked, dict(enumerate(origins)))
    assert text.text == plain == strip_marks(marked)
    previous = 0
    for item in text.origins:
        assert previous < item.first <= item.last <= plain.count("\n") + 1
        previous = item.last
    assert strip_marks(trim(marked)) == plain.strip()
    assert is_blank(marked) == (not plain.strip())


@given(st.lists(st.text("ab\n", max_size=5), max_size=30), st.data())
def test_a_line_is_what_is_between_two_line_feeds_whatever_pieces_it_has(
    pieces: list[str], data: st.DataObject
) -> None:
    text = RenderedText(Paged([Page(tuple(map(Piece, pieces[at : at + 3]))) for at in range(0, len(pieces), 3)]))
    lines = "".join(pieces).split("\n")
    number = data.draw(st.integers(-1, len(lines) + 1))
    assert text.line_at(number) == (lines[number - 1] if 1 <= number <= len(lines) else "")
