"""Values that do not fit the settings of libraries are reported with their place and the expected type."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.config.libraries import library_names, load_library
from haptic_trio.config.load import load_config
from haptic_trio.config.settings import Setting, SettingType, check_defaults, check_values, flat_settings
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem

ALL = flat_settings(*(load_library(name).settings for name in library_names()))


def problems_of(config: str) -> list[Problem]:
    configmap = {"metadata": {"name": "c", "namespace": "n"}, "data": {"config": config}}
    try:
        load_config(configmap, None)
    except ConfigInvalidError as exc:
        return list(exc.problems)
    return []


def test_a_value_of_the_wrong_type_is_reported_with_its_place_and_the_expected_type() -> None:
    (problem,) = problems_of("templating:\n  extraContext:\n    timeoutClient: 50\n")

    assert (problem.source, problem.line, problem.path) == (
        "ConfigMap n/c",
        3,
        "templating.extraContext.timeoutClient",
    )
    assert problem.message == "expected a time with its unit, such as 30s, found the number 50"


def test_all_values_are_checked_also_those_inside_others() -> None:
    found = problems_of(
        "templating:\n"
        "  extraContext:\n"
        "    trustedProxies: [10.0.0.0/8, nonsense]\n"
        "    errorPages: {'503': ok, '418': teapot}\n"
        "    strictSni: 'yes'\n"
        "    httpPort: 99999\n"
        "    forwardedHeaders: kept\n"
        "    peers: {a: '10.0.0.1:x'}\n"
    )

    assert [problem.path.removeprefix("templating.extraContext.") for problem in found] == [
        "trustedProxies[1]",
        'errorPages["418"]',
        "strictSni",
        "httpPort",
        "forwardedHeaders",
        "peers.a",
    ]
    assert "expected one of replace, append, found the text 'kept'" in found[4].message


def test_a_name_that_is_nearly_a_setting_is_reported() -> None:
    (problem,) = problems_of("templating: {extraContext: {timeoutCleint: 1s}}")

    assert problem.hint == "did you mean `timeoutClient`?"


def test_a_name_that_a_template_reads_is_the_users_own() -> None:
    snippet = "templateSnippets: {global-mine: {template: '# {{ timeoutCleint }}'}}\n"

    assert problems_of("templating: {extraContext: {timeoutCleint: 1s, greeting: hello}}\n" + snippet) == []


def test_variables_of_tests_are_checked_as_well() -> None:
    (problem,) = problems_of(
        "validationTests:\n"
        "  mine:\n"
        "    extraContext: {sslRedirect: 1}\n"
        "    assertions: [{type: contains, text: global}]\n"
    )

    assert (problem.line, problem.path) == (3, "validationTests.mine.extraContext.sslRedirect")


def test_what_stands_for_nothing_may_be_given() -> None:
    given = {name: setting.default for name, setting in ALL.items()}

    assert list(check_values(given, ALL, path="x")) == []


@pytest.mark.parametrize(
    ("setting", "fits", "does_not"),
    [
        (Setting(type=SettingType.SWITCH, default=False, meaning="m"), [True], ["true", 1, None]),
        (Setting(type=SettingType.NUMBER, default=0, min=2, meaning="m"), [2, 0], [1, "2", 2.5, False, None]),
        (Setting(type=SettingType.NUMBER, default=1, values=("1", "3"), meaning="m"), [1, 3], [2]),
        (Setting(type=SettingType.PORT, default=0, meaning="m"), [0, 80], ["80", 65536, -1, True]),
        (Setting(type=SettingType.DURATION, default="1s", meaning="m"), ["5m"], [5, "5", "5 s", "", None, []]),
        (Setting(type=SettingType.SIZE, default=0, meaning="m"), [0, 12, "64k"], ["64kb", -1, True]),
        (Setting(type=SettingType.WORD, default="", meaning="m"), ["a(b)", ""], ["a b", "a\nb", 3]),
        (Setting(type=SettingType.TEXT, default="", meaning="m"), ["a b", ""], [3, None, {}]),
        (Setting(type=SettingType.NETWORK, default="::1", meaning="m"), ["10.0.0.0/8", "::/0"], ["10.0.0.0/33", "a"]),
        (Setting(type=SettingType.REFERENCE, default="", meaning="m"), ["a/b.c", ""], ["a", "a/b/c", "A/b"]),
        (Setting(type=SettingType.HEADER, default="", meaning="m"), ["X-A", ""], ["X A", "X:A", "$A"]),
        (Setting(type=SettingType.HEADERS, default="", meaning="m"), ["$A", "a'`|#%&*", "-a"], ["X A", "X:A", 'a"']),
        (Setting(type=SettingType.LIST, of=SettingType.PORT, default=[], meaning="m"), [[1]], [1, ["a"], {"a": 1}]),
        (
            Setting(type=SettingType.MAPPING, keys=SettingType.HEADER, of=SettingType.TEXT, default={}, meaning="m"),
            [{"X-A": "b"}],
            [["X-A"], {"X A": "b"}, {"X-A": 1}],
        ),
        (
            Setting(
                type=SettingType.MAPPING, keys=SettingType.NAME, of=SettingType.NAMESPACES, default={}, meaning="m"
            ),
            [{"a": ["*"]}, {"a": ["shop", "x-1"], "b": []}],
            [{"a": "*"}, {"a": ["Shop"]}, {"a": [1]}, {"a b": ["*"]}, {"a": None}],
        ),
        (Setting(type=SettingType.MAPPING, of=SettingType.ANYTHING, default={}, meaning="m"), [{"a": [1]}], ["a"]),
    ],
    ids=lambda value: value.type if isinstance(value, Setting) else "",
)
def test_types_take_what_they_mean(setting: Setting, fits: list[Any], does_not: list[Any]) -> None:
    for value in fits:
        assert list(check_values({"s": value}, {"s": setting}, path="x")) == [], value
    for value in does_not:
        assert list(check_values({"s": value}, {"s": setting}, path="x")), value


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(sorted(ALL)), anything)
def test_every_value_is_used_or_reported(name: str, value: Any) -> None:
    for problem in check_values({name: value}, ALL, path="x"):
        assert problem.path.startswith(f"x.{name}")
        assert problem.message


def test_a_librarys_own_settings_are_checked() -> None:
    number = Setting(type=SettingType.NUMBER, default="many", meaning="m")
    bare = Setting(type=SettingType.LIST, default=[], meaning="m")

    found = list(check_defaults({"One": {"a": number, "b": bare}, "Two": {"a": number}}))

    assert [problem.path for problem in found] == [
        "settings.One.a.default",
        "settings.One.b",
        "settings.Two.a",
        "settings.Two.a.default",
    ]


def test_settings_of_shipped_libraries_have_a_meaning() -> None:
    for name, setting in ALL.items():
        assert setting.meaning.endswith("."), name
