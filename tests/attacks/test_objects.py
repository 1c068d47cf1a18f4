"""Whatever stands in any field of any object of a tenant: it is data, and the tenant's own affair."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.attacks.inputs.annotation_samples import BESIDE, annotated
from tests.attacks.inputs.mutations import (
    HOWS,
    Leaf,
    Mutation,
    batches,
    can_be_stored,
    leaves,
    pattern_of,
    samples,
    table,
    tenant_of,
)
from tests.attacks.inputs.samples import SAMPLES
from tests.attacks.inputs.schema_fields import fields
from tests.attacks.inputs.shapes import flags_from_data, shape
from tests.attacks.inputs.values import OTHER_TYPES, TEXTS
from tests.attacks.site import Site, blame

pytestmark = pytest.mark.haproxy

IS_DEEP = settings.default is not None and settings.default.max_examples > 1_000
EVERY = 8 if IS_DEEP else 400
GROUPS = list(dict.fromkeys(name.split("/")[0] for name in samples()))


class Trial:
    """Puts hostile copies beside the victim, and names those that do harm."""

    def __init__(self, site: Site, directory: Path) -> None:
        self._site = site
        self._directory = directory
        self._checks = 0

    def run(self, mutations: Sequence[Mutation]) -> None:
        """Fail with the smallest set of *mutations* for each oracle that does not hold."""
        numbered = list(enumerate(mutations, 1))
        found = {fault.oracle: fault for fault in reversed(self._site.faults(numbered, self._next_directory()))}
        assert not found, "\n\n".join(
            f"{oracle}: {fault.detail}\n  by " + "\n  or ".join(self._names_of(oracle, numbered))
            for oracle, fault in found.items()
        )

    def _names_of(self, oracle: str, mutations: Sequence[tuple[int, Mutation]]) -> list[str]:
        def is_bad(some: Sequence[tuple[int, Mutation]]) -> bool:
            directory = self._next_directory() if oracle == "haproxy" else None
            return any(fault.oracle == oracle for fault in self._site.faults(some, directory))

        return [str(one) for one in blame(mutations, is_bad)[:5]]

    def _next_directory(self) -> Path:
        self._checks += 1
        return self._directory / str(self._checks)


@pytest.fixture
def trial(site: Site, tmp_path: Path) -> Trial:
    return Trial(site, tmp_path)


@pytest.mark.parametrize("group", GROUPS)
def test_no_hostile_value_of_any_field_leaves_its_place(site: Site, trial: Trial, group: str) -> None:
    names = [name for name in samples() if name.split("/")[0] == group]
    mutations = [
        mutation
        for number, name in enumerate(names)
        for mutation in table(name, site.names_for_attackers, every=EVERY, offset=number)
    ]
    for some in batches(mutations, samples()[names[0]].copies):
        trial.run(some)


TEXT = st.lists(st.sampled_from(TEXTS) | st.text(max_size=3), min_size=1, max_size=4).map("".join)
VALUE = TEXT | st.sampled_from(OTHER_TYPES)


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """Return a sample with one to three hostile values."""
    places: tuple[Leaf, ...] = leaves(draw(st.sampled_from(sorted(samples()))))

    def one() -> Mutation:
        leaf = draw(st.sampled_from(places))
        value: Any = draw(TEXT if leaf.of_key else VALUE)
        return Mutation(leaf, value, draw(st.sampled_from(HOWS)))

    first = one()
    return Mutation(first.leaf, first.value, first.how, tuple(one() for _ in range(draw(st.integers(0, 2)))))


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    max_examples=settings.default.max_examples // 20 if settings.default else 10,
    deadline=None,
)
@given(st.lists(mutations().filter(can_be_stored), min_size=1, max_size=12))
def test_no_combination_of_hostile_values_leaves_its_places(trial: Trial, some: list[Mutation]) -> None:
    trial.run(some)


def test_benign_tenants_are_served(site: Site) -> None:
    """What is not rejected as it stands would prove nothing of values in it."""
    everything = [one for number, sample in enumerate(SAMPLES, 1) for one in sample.build(tenant_of(number))]
    everything += [annotated(tenant_of(1), "beside", vendor, values) for vendor, values in BESIDE.items()]
    rejected = {str(rejection.subject): rejection.problem for rejection in site.render_with(everything).rejections}

    assert rejected == {}


def test_every_kind_and_every_field_of_the_schemas_has_a_place() -> None:
    there = {
        (one["kind"], leaf_path)
        for name in samples()
        if "/" not in name
        for number, one in enumerate(samples()[name].build(tenant_of(1)))
        for leaf_path in (pattern_of(leaf) for leaf in leaves(name) if leaf.object == number and not leaf.of_key)
    }
    missing = [field for field in fields() if field.kind != "*" and (field.kind, field.path) not in there]

    assert missing == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("http-request deny if { path -m str '-u' }", ["-u"]),
        ("http-request deny if { path -m str -- '-u' }", []),
        ("http-request deny if { path -m str -- a } { path '-i' }", ["-i"]),
        ("acl evil path -i '-n'", ["-n"]),
        ("http-request set-header X '-u'", []),
    ],
)
def test_flags_from_data_are_seen(line: str, found: list[str]) -> None:
    assert flags_from_data(line) == found


@pytest.mark.parametrize(
    ("benign", "hostile"),
    [
        ("use_backend a_b_80", "use_backend a_b_80 if TRUE"),
        ("http-request set-header X-A 'b'", "http-request set-header X-A '%[env(HOME)]'"),
        ("http-request deny if { path -- '/a' }", "http-request deny if { path -i -- '/a' }"),
        ("http-request deny if { path -- '/a' }", "http-request deny if { path '-i' }"),
        ("server s1 10.0.0.1:80", "server s1 unix@/run/x"),
        ("server s1 10.0.0.1:80", "server s1 10.0.0.1:80 check"),
    ],
)
def test_other_lines_have_other_shapes(benign: str, hostile: str) -> None:
    assert shape(benign) != shape(hostile)
