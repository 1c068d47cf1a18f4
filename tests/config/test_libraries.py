from pathlib import Path

import pytest

from haptic_trio.config.decode import decode_config
from haptic_trio.config.libraries import LibraryDoc, decode_library, library_names, load_library, merge, merge_context
from haptic_trio.config.model import Config
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem

HEAD = "name: mine\ndescription: a test\n"


def library(directory: Path, text: str, **templates: str) -> LibraryDoc:
    directory.mkdir(exist_ok=True)
    (directory / "library.yaml").write_text(HEAD + text)
    for name, template in templates.items():
        (directory / f"{name}.j2").write_text(template)
    return decode_library(directory, source="library mine").value


def problems_of(directory: Path, text: str, **templates: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigInvalidError) as caught:
        library(directory, text, **templates)
    return caught.value.problems


def test_template_file_stands_for_its_text(tmp_path: Path) -> None:
    doc = library(
        tmp_path,
        "templateSnippets: {part: {templateFile: part.j2, priority: 3}}\n"
        "maps: {a.map: {templateFile: part.j2}}\n"
        "haproxyConfig: {templateFile: main.j2}\n",
        part="{{ x }}\n",
        main="global\n",
    )

    assert (doc.template_snippets["part"].template, doc.template_snippets["part"].priority) == ("{{ x }}\n", 3)
    assert doc.maps["a.map"].template == "{{ x }}\n"
    assert doc.haproxy_config is not None
    assert doc.haproxy_config.template == "global\n"


@pytest.mark.parametrize("name", ["absent.j2", "../library.yaml", "/etc/hosts", "[a]", "''", "."])
def test_template_file_that_is_not_beside_the_library_is_a_problem(tmp_path: Path, name: str) -> None:
    (problem,) = problems_of(tmp_path, f"maps:\n  a.map:\n    templateFile: {name}\n")

    assert (problem.path, problem.line) == ('maps["a.map"].templateFile', 5)


def test_template_and_template_file_exclude_each_other(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "maps: {a.map: {template: x, templateFile: a.j2}}\n", a="y")

    assert "exclude each other" in problem.message


def test_library_cannot_set_what_is_the_users(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, "dataplane: {port: 1}\ntemplating: {libraries: []}\nmpas: {}\n")

    assert [problem.path for problem in problems] == ["dataplane", "templating.libraries", "mpas"]
    assert "only the user" in problems[0].hint
    assert "`maps`" in problems[2].hint


def test_library_needs_a_name_and_a_description(tmp_path: Path) -> None:
    (tmp_path / "library.yaml").write_text("maps: {}\n")

    with pytest.raises(ConfigInvalidError) as caught:
        decode_library(tmp_path, source="library mine")
    assert [problem.path for problem in caught.value.problems] == ["name", "description"]


def test_unknown_library_comes_with_the_nearest_name() -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        load_library("bsae")
    assert "`base`" in caught.value.problems[0].hint


@pytest.mark.parametrize("name", ["..", ".", "", "base/../base", "/"])
def test_library_name_is_not_a_path(name: str) -> None:
    with pytest.raises(ConfigInvalidError):
        load_library(name)


def test_shipped_library_bears_the_name_of_its_directory() -> None:
    assert {"base", "ssl", "ingress"} <= set(library_names())
    for name in library_names():
        assert load_library(name).name == name


def test_later_layers_replace_entries_whole(tmp_path: Path) -> None:
    low = library(
        tmp_path / "low",
        "maps: {a: {template: low}, b: {template: low}}\n"
        "templateSnippets: {s: {template: low, priority: 1}}\n"
        "watchedResources: {w: {apiVersion: v1, resources: xs, labelSelector: a=b}}\n"
        "haproxyConfig: {template: low}\n",
    )
    high = library(
        tmp_path / "high", "maps: {b: {template: high}, c: {template: high}}\nhaproxyConfig: {template: high}\n"
    )
    user = decode_config(
        "dataplane: {port: 7}\n"
        "maps: {c: {template: user}}\n"
        "templateSnippets: {s: {template: user}}\n"
        "watchedResources: {w: {apiVersion: v1, resources: ys}}\n",
        source="x",
    )

    merged = merge(low, high, user=user)

    assert {name: entry.template for name, entry in merged.maps.items()} == {"a": "low", "b": "high", "c": "user"}
    assert merged.template_snippets["s"].priority == 500
    assert merged.watched_resources["w"].label_selector == ""
    assert merged.haproxy_config is not None
    assert merged.haproxy_config.template == "high"
    assert merged.dataplane.port == 7


def test_users_main_template_goes_before_all(tmp_path: Path) -> None:
    low = library(tmp_path, "haproxyConfig: {template: low}\n")

    merged = merge(low, user=decode_config("haproxyConfig: {template: user}", source="x"))

    assert merged.haproxy_config is not None
    assert merged.haproxy_config.template == "user"


def test_context_is_merged_at_every_depth(tmp_path: Path) -> None:
    low = library(tmp_path, "templating: {extraContext: {a: {x: 1, y: [1]}, b: {z: 1}, c: 1}}\n")

    merged = merge(low, user=decode_config("templating: {extraContext: {a: {y: [2]}, b: null, c: {d: 2}}}", source="x"))

    assert merged.templating.extra_context == {"a": {"x": 1, "y": [2]}, "b": None, "c": {"d": 2}}


def test_merging_changes_no_layer(tmp_path: Path) -> None:
    lower = {"a": {"x": 1}}
    upper = {"a": {"y": 2}}

    assert merge_context(lower, upper) == {"a": {"x": 1, "y": 2}}
    assert (lower, upper) == ({"a": {"x": 1}}, {"a": {"y": 2}})


def test_merging_nothing_is_the_users_configuration() -> None:
    assert merge(user=Config()) == Config()
