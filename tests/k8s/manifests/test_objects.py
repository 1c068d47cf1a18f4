import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.manifests.objects import MAX_SIZE, LocatedResource, read_manifests
from haptic_trio.yaml import reader
from tests.k8s.objects import service_manifest


def places(located: list[LocatedResource]) -> list[tuple[str, int]]:
    return [(each.resource["metadata"]["name"], each.line) for each in located]


def test_every_document_is_an_object_with_its_line() -> None:
    text = f"# head\n{service_manifest('a')}---\n{service_manifest('b')}--- # comment\n\n{service_manifest('c')}...\n"

    located, problems = read_manifests(text, "x.yaml")

    assert not problems
    assert places(located) == [("a", 2), ("b", 10), ("c", 19)]
    assert {each.source for each in located} == {"x.yaml"}
    assert located[0].resource["spec"] == {"ports": [{"port": 80}]}


@pytest.mark.parametrize(
    "text", ["", "\n\n", "---\n---\n", "# only words\n---\n# more\n", "%YAML 1.2\n---\n", "null\n", "\ufeff"]
)
def test_text_without_documents_has_no_objects_and_no_problems(text: str) -> None:
    assert read_manifests(text, "x.yaml") == ([], [])


def test_a_directive_and_a_byte_order_mark_are_allowed_before_the_first_document() -> None:
    located, problems = read_manifests(f"\ufeff%YAML 1.2\n---\n{service_manifest('a')}", "x.yaml")

    assert not problems
    assert places(located) == [("a", 3)]


def test_dashes_within_a_text_block_separate_nothing() -> None:
    text = service_manifest("a") + "data: |\n  one\n  ---\n  two\n"

    located, problems = read_manifests(text, "x.yaml")

    assert not problems
    assert located[0].resource["data"] == "one\n---\ntwo\n"


def test_lists_are_taken_apart() -> None:
    items = "".join(f"- apiVersion: v1\n  kind: Service\n  metadata: {{name: {name}}}\n" for name in "ab")

    located, problems = read_manifests(f"apiVersion: v1\nkind: List\nitems:\n{items}", "x.yaml")

    assert not problems
    assert places(located) == [("a", 4), ("b", 7)]


def test_items_of_a_typed_list_have_its_type() -> None:
    text = "apiVersion: networking.k8s.io/v1\nkind: IngressList\nitems:\n- metadata: {name: a}\n"

    ((only,), problems) = read_manifests(text, "x.yaml")

    assert not problems
    assert (only.resource["apiVersion"], only.resource["kind"]) == ("networking.k8s.io/v1", "Ingress")


def test_an_empty_list_is_nothing() -> None:
    assert read_manifests("apiVersion: v1\nkind: List\nitems: []", "x") == ([], [])
    assert read_manifests("apiVersion: v1\nkind: List\nitems:", "x") == ([], [])


def test_an_item_that_is_not_an_object_is_a_problem_of_its_own() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- 5\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n"

    located, (problem,) = read_manifests(text, "x.yaml")

    assert places(located) == [("a", 5)]
    assert problem.line == 4


@pytest.mark.parametrize("parser", [reader.PythonParser, reader._Parser], ids=["Python", "default"])
@pytest.mark.parametrize("escape", [r"\ud800", r"\udc00x", r"\ud83d\n"])
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_half_of_a_pair_of_escapes_costs_its_document_alone(
    monkeypatch: pytest.MonkeyPatch, parser: Any, escape: str, form: str
) -> None:
    monkeypatch.setattr(reader, "_Parser", parser)
    broken = {
        "yaml": f'apiVersion: v1\nkind: Service\nmetadata:\n  name: b\n  annotations: {{x: "{escape}"}}\n',
        "json": f'{{"apiVersion": "v1", "kind": "Service",\n "metadata": {{"name": "b",\n\n\n'
        f' "labels": {{"x": "{escape}"}}}}}}\n',
    }[form]
    whole = "apiVersion: v1\nkind: Service\nmetadata:\n  name: {}\n"

    located, problems = read_manifests(f"{whole.format('a')}---\n{broken}---\n{whole.format('c')}", "site.yaml")

    assert [one.resource["metadata"]["name"] for one in located] == ["a", "c"]
    (problem,) = problems
    assert (problem.source, problem.line) == ("site.yaml", 10)
    assert problem.message == "found invalid Unicode character escape code"
    assert "write the character itself" in problem.hint


def test_json_is_read_with_escapes_that_yaml_lacks() -> None:
    resource = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "annotations": {"x": "😀 a/b"}}}
    text = json.dumps(resource, indent="\t")
    assert "\\ud83d\\ude00" in text

    located, problems = read_manifests("\n" + text, "x.json")

    assert not problems
    assert located == [LocatedResource(resource, "x.json", 2)]


def test_a_broken_document_takes_none_of_its_neighbours_with_it() -> None:
    text = f"{service_manifest('a')}---\nkind: Service\n  broken: [\n---\n{service_manifest('b')}"

    located, (problem,) = read_manifests(text, "dir/x.yaml")

    assert places(located) == [("a", 1), ("b", 12)]
    assert (problem.source, problem.line, problem.column) == ("dir/x.yaml", 10, 9)
    assert problem.excerpt == "    9 | kind: Service\n   10 |   broken: ["
    assert problem.hint


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("just text", "expected an object: found the text 'just text'"),
        ("- 1", "expected an object: found a list"),
        ("kind: A\nmetadata: {name: a}", "apiVersion is missing"),
        ("apiVersion: 1\nkind: A\nmetadata: {name: a}", "apiVersion is missing or not text"),
        ("apiVersion: v1\nmetadata: {name: a}", "kind is missing"),
        ("apiVersion: v1\nkind: A", "metadata is missing"),
        ("apiVersion: v1\nkind: A\nmetadata: a", "metadata is missing or not a mapping"),
        ("apiVersion: v1\nkind: A\nmetadata: {}", "metadata.name is missing"),
        ("apiVersion: v1\nkind: A\nmetadata: {generateName: a-}", "metadata.name is missing"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: 5}", "metadata.name is not text"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: 'a b'}", "metadata.name is not valid"),
        ('apiVersion: v1\nkind: A\nmetadata: {name: "a\\nb"}', "metadata.name is not valid"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: ../a}", "metadata.name is not valid"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: 5}", "metadata.namespace is not valid"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: A_b}", "metadata.namespace is not valid"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a, labels: [x]}", "metadata.labels is not a mapping"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a, annotations: {x: on}}", "metadata.annotations['x'] is not text"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested deeper"),
    ],
)
def test_a_document_that_no_cluster_would_take_is_a_problem_with_a_hint(text: str, part: str) -> None:
    located, (problem,) = read_manifests(text, "x.yaml")

    assert not located
    assert part in problem.message
    assert problem.source == "x.yaml"
    assert problem.line == 1
    assert problem.hint


def test_a_problem_names_the_object_in_hand() -> None:
    text = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, labels: {a: 1}}"

    _located, (problem,) = read_manifests(text, "x.yaml")

    assert problem.subject == "Service shop/web"


@pytest.mark.parametrize(
    "secret",
    [
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  password: *hunter2\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata:\n  hunter2: b: c\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  hunter2: a\n  hunter2: b\n",
        "stringData:\n  password: hunter2\n  x: [\n",
        '{"kind" : "Secret", "data": {"password": "hunter2" "x"}}',
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {p: !hunter2 x}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  p: |\n---\n  hunter2\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: [\n---\n  p: hunter2\n---\n q: hunter2: x\n",
    ],
)
def test_a_problem_of_a_secret_shows_nothing_of_it(secret: str) -> None:
    _located, problems = read_manifests(secret, "x.yaml")

    assert problems
    assert "hunter2" not in repr(problems)
    assert not any(problem.excerpt for problem in problems)


def test_a_document_that_is_too_large_is_a_problem_and_those_before_it_are_read() -> None:
    located, (problem,) = read_manifests(f"{service_manifest('a')}\n---\n{'#' * (MAX_SIZE + 1)}", "x.yaml")

    assert [each.resource["metadata"]["name"] for each in located] == ["a"]
    assert "larger than 64 MiB" in problem.message
    assert problem.line == service_manifest("a").count("\n") + 2


@given(st.text(alphabet="ab:-[]{},&*'\"# \n", max_size=60))
def test_any_text_gives_objects_or_problems_with_lines_of_the_text(text: str) -> None:
    located, problems = read_manifests(text, "x.yaml")

    last = text.count("\n") + 1
    assert all(1 <= each.line <= last for each in located)
    assert all(1 <= problem.line <= last and problem.message and problem.hint for problem in problems)
