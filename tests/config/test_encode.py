import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.config.assertions import (
    Behaviour,
    Contains,
    Expect,
    HaproxyValid,
    JsonPathHolds,
    MatchCount,
    PlanIs,
    PlanOutcome,
    Received,
    Request,
)
from haptic_trio.config.decode import decode_config
from haptic_trio.config.encode import encode_value
from haptic_trio.config.load import load_config
from haptic_trio.config.model import (
    Config,
    ControllerConfig,
    DataplaneConfig,
    DataplaneKind,
    Duration,
    HttpResource,
    LeaderElection,
    LoggingConfig,
    LogLevel,
    PodSelector,
    ReconcilerConfig,
    Snippet,
    StoreKind,
    Template,
    TemplatingConfig,
    ValidationConfig,
    ValidationTest,
    WatchedResource,
)
from haptic_trio.config.yaml.errors import ConfigInvalidError

SAMPLE = """
podSelector: {matchLabels: {app: haproxy}}
controller:
  leaderElection: {leaseDuration: 15s, renewDeadline: 10s}
dataplane: {kind: local, port: 5555, minDeploymentInterval: 1m30s}
templating:
  libraries: []
  extraContext: &shared {a: 1, b: [true, null, 0.5, 2024-01-01], c: {d: e}}
watchedResources:
  ingresses: {apiVersion: networking.k8s.io/v1, resources: ingresses, indexBy: [metadata.namespace]}
templateSnippets:
  part: {template: "{{ a }}", priority: 5}
maps:
  host.map: {template: "{% for x in b %}{{ x }}{% endfor %}"}
haproxyConfig:
  template: |
    global
      {{ c.d }}
validationTests:
  one: {fixtures: {ingresses: [*shared]}}
"""
FRAGMENTS = [
    "{", "}", "[", "]", "&x ", "*x", "*shared", "!!int ", "!!set ", "!y ", "<<: ", "? ", "- ", ": ", "\n", "\n  ", "\t",
    "|", ">", "'", '"', "#", "%", "@", "`", "---\n", "...\n", "null", "~", "0x", "0b_", "1_", "1:2:3", ".inf", "1e999",
    "-", "\x00", "\ud800", "\u2028", "\x85", "{{", "}}", "{%", "%}", "9" * 5000, "-1", "5s", "..", "$[?", "/",
]  # fmt: skip

positive_durations = st.integers(1, 10**10).map(lambda milliseconds: Duration(milliseconds / 1000))
durations = st.just(Duration(0)) | positive_durations
texts = st.text(max_size=12)
keys = st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
contexts = st.dictionaries(keys, json_values, max_size=3)
templates = st.builds(Template, template=texts)


def by_name(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Mapping[str, Any]]:
    return st.dictionaries(keys, values, max_size=2)


def tuples(values: st.SearchStrategy[Any], least: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, min_size=least, max_size=3).map(tuple)


watched_resources = st.builds(
    WatchedResource,
    api_version=texts,
    resources=texts,
    index_by=tuples(texts, 1),
    label_selector=texts,
    field_selector=texts,
    namespaces=tuples(texts),
    store=st.sampled_from(StoreKind),
    required=st.booleans(),
    enable_validation_webhook=st.booleans(),
)
requests = st.builds(Request, host=texts, headers=st.dictionaries(keys, texts, max_size=2), times=st.integers(1, 9))
expectations = st.builds(
    Expect, status=st.integers(0, 599), endpoints=st.lists(texts, max_size=2), received=st.builds(Received, path=texts)
)
assertions = st.one_of(
    st.builds(HaproxyValid, description=texts),
    st.builds(Contains, target=texts, section=texts, text=texts, pattern=texts),
    st.builds(MatchCount, text=texts, count=st.integers(0, 9)),
    st.builds(JsonPathHolds, path=texts, expected=st.lists(contexts, max_size=2)),
    st.builds(PlanIs, outcome=st.sampled_from(PlanOutcome), operations=st.lists(texts, max_size=2)),
    st.builds(Behaviour, request=requests, expect=expectations),
)
validation_tests = st.builds(
    ValidationTest,
    description=texts,
    extends=texts,
    fixtures=st.dictionaries(keys, st.lists(contexts, max_size=2), max_size=2),
    http_resources=st.lists(st.builds(HttpResource, url=texts, content=st.none() | texts, error=texts), max_size=2),
    current_config=texts,
    extra_context=contexts,
    assertions=st.lists(assertions, max_size=2),
)
configs = st.builds(
    Config,
    pod_selector=st.builds(PodSelector, match_labels=st.dictionaries(keys, texts, max_size=2)),
    controller=st.builds(
        ControllerConfig,
        leader_election=st.builds(
            LeaderElection,
            enabled=st.booleans(),
            lease_name=texts,
            lease_duration=positive_durations,
            renew_deadline=positive_durations,
            retry_period=positive_durations,
        ),
        start_timeout=positive_durations,
        drain_timeout=durations,
    ),
    logging=st.builds(LoggingConfig, level=st.sampled_from(LogLevel)),
    dataplane=st.builds(
        DataplaneConfig,
        kind=st.sampled_from(DataplaneKind),
        port=st.integers(1, 65535),
        min_deployment_interval=durations,
        drift_prevention_interval=positive_durations,
        deployment_timeout=positive_durations,
        max_parallel=st.integers(0),
        maps_dir=texts,
        config_file=texts,
    ),
    reconciler=st.builds(ReconcilerConfig, debounce_interval=durations),
    validation=st.builds(ValidationConfig, check_timeout=positive_durations),
    templating=st.builds(
        TemplatingConfig,
        render_timeout=positive_durations,
        max_output_bytes=st.integers(1),
        libraries=tuples(texts),
        extra_context=contexts,
    ),
    watched_resources_ignore_fields=tuples(texts),
    watched_resources=by_name(watched_resources),
    template_snippets=by_name(st.builds(Snippet, template=texts, priority=st.integers())),
    maps=by_name(templates),
    files=by_name(templates),
    ssl_certificates=by_name(templates),
    crt_lists=by_name(templates),
    haproxy_config=st.none() | templates,
    validation_tests=by_name(validation_tests),
)


def written(config: Config) -> str:
    # Without escapes PyYAML folds U+0085 and its like, and what is read back differs.
    return yaml.safe_dump(encode_value(config), sort_keys=False, allow_unicode=False, width=120)


@given(configs)
def test_configuration_survives_encoding(config: Config) -> None:
    assert decode_config(written(config), source="x") == config


def test_default_configuration_survives_encoding() -> None:
    assert decode_config(written(Config()), source="x") == Config()


@given(
    st.lists(st.tuples(st.integers(0, len(SAMPLE)), st.integers(0, 12), st.sampled_from(["", *FRAGMENTS])), max_size=4)
)
def test_mutated_text_is_loaded_or_rejected(edits: list[tuple[int, int, str]]) -> None:
    text = SAMPLE
    for start, length, replacement in edits:
        text = text[:start] + replacement + text[start + length :]

    with suppress(ConfigInvalidError):
        load_config({"metadata": {"name": "x"}, "data": {"config": text}}, None)


@given(st.randoms(use_true_random=False))
def test_shuffled_lines_are_loaded_or_rejected(randomness: random.Random) -> None:
    lines = SAMPLE.splitlines()
    randomness.shuffle(lines)

    with suppress(ConfigInvalidError):
        decode_config("\n".join(lines), source="x")


@given(st.text())
def test_any_text_is_decoded_or_rejected(text: str) -> None:
    with suppress(ConfigInvalidError):
        decode_config(text, source="x")
