"""Generations as manifests: what arrives is what was sent, or is rejected."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.agent.generations import (
    KEPT,
    KnownGenerations,
    MissingBlobsError,
    UnknownBaseError,
    WrongContentError,
    cut_generation,
    make_manifest,
    new_pieces,
)
from haptic_trio.dataplane.agent.messages import Manifest, Recipe
from haptic_trio.dataplane.agent.pieces import OutsideBaseError, RecipeError, digest_recipe
from haptic_trio.haproxy.config.parser import ConfigSyntaxError
from haptic_trio.haproxy.model import FileKind, Generation, digest_of, make_file
from haptic_trio.haproxy.plan.delta import make_delta
from tests.support.processes.haproxy import BASE, build_generation


def generation(ports: dict[str, int], files: dict[str, str] | None = None, *, secret: bool = False) -> Generation:
    backends = "".join(f"\nbackend {name}\n    server one 127.0.0.1:{port}\n" for name, port in ports.items())
    made = [make_file(FileKind.MAP, path, content, secret=secret) for path, content in (files or {}).items()]
    return build_generation(BASE + backends, made)


def known_generations(*generations: Generation) -> KnownGenerations:
    known = KnownGenerations(piece_limit=100_000, byte_limit=1 << 24)
    for one in generations:
        known.learn(one)
    return known


def wired(manifest: Manifest) -> Manifest:
    return msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest)


def nowhere(_digest: str) -> bytes | None:
    return None


generations = st.builds(
    generation,
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), max_size=6),
    st.dictionaries(st.sampled_from(["maps/a", "maps/b", "general/c"]), st.text("xyz\n", max_size=20)),
)


@given(generations, generations)
def test_what_was_cut_before_is_cut_in_the_same_way(former: Generation, desired: Generation) -> None:
    assert cut_generation(desired, cut_generation(former)) == cut_generation(desired)


@given(generations, generations)
def test_a_manifest_on_top_of_another_generation_gives_the_generation(former: Generation, desired: Generation) -> None:
    base, cut = cut_generation(former), cut_generation(desired)
    arrived = known_generations(former).assemble(wired(make_manifest(cut, base)), new_pieces(cut, base).get)
    assert arrived == desired


@given(generations)
def test_complete_manifest_gives_the_generation_or_its_missing_blobs(desired: Generation) -> None:
    cut = cut_generation(desired)
    manifest = wired(make_manifest(cut))
    known = known_generations()
    with pytest.raises(MissingBlobsError) as rejection:
        known.assemble(manifest, nowhere)
    pieces = new_pieces(cut, None)
    assert set(rejection.value.missing) == set(pieces)
    assert known.assemble(manifest, pieces.get) == desired


def test_one_server_of_a_thousand_is_a_manifest_of_some_hundred_bytes() -> None:
    ports = {f"b{number}": 80 for number in range(1000)}
    former, desired = cut_generation(generation(ports)), cut_generation(generation({**ports, "b500": 81}))
    blobs = new_pieces(desired, former)
    assert len(msgspec.json.encode(make_manifest(desired, former))) < 400
    assert sum(map(len, blobs.values())) < 100


def test_pieces_of_any_known_generation_need_not_be_sent_again() -> None:
    first, second = generation({"a": 1, "z": 9}), generation({"b": 2, "z": 9})
    third = cut_generation(generation({"a": 1, "b": 2, "z": 9}))
    known = known_generations(first, second)
    assert known.assemble(make_manifest(third), nowhere) == third.generation


def test_an_unknown_base_is_rejected() -> None:
    former, desired = cut_generation(generation({"a": 1})), cut_generation(generation({"a": 2}))
    with pytest.raises(UnknownBaseError):
        known_generations().assemble(make_manifest(desired, former), new_pieces(desired, None).get)


def test_base_that_was_cut_differently_is_rejected() -> None:
    former, desired = cut_generation(generation({"a": 1, "b": 2})), cut_generation(generation({"a": 1, "b": 3}))
    manifest = make_manifest(desired, former)
    turned = msgspec.structs.replace(manifest.config, steps=manifest.config.steps[::-1])
    with pytest.raises(OutsideBaseError, match="other pieces"):
        known_generations(former.generation).assemble(
            msgspec.structs.replace(manifest, config=turned), new_pieces(desired, None).get
        )


@given(generations, generations)
def test_a_delta_leads_to_the_generation_from_its_base_and_from_nowhere_else(
    former: Generation, desired: Generation
) -> None:
    delta = make_delta(former, desired)
    assert known_generations(former).apply(delta) == desired
    if former.id != desired.id:
        with pytest.raises(UnknownBaseError):
            known_generations().apply(delta)


def test_a_delta_that_does_not_lead_where_it_says_is_rejected() -> None:
    former, desired = generation({"a": 1}), generation({"a": 2})
    delta = msgspec.structs.replace(make_delta(former, desired), id=generation({"a": 3}).id)
    with pytest.raises(UnknownBaseError, match="leads to"):
        known_generations(former).apply(delta)


def test_only_the_newest_generations_are_known() -> None:
    made = [generation({"a": port}) for port in range(1, KEPT + 2)]
    known = known_generations(*made)
    assert known.find(made[0].id) is None
    assert all(known.find(one.id) is not None for one in made[1:])


def test_a_manifest_that_gives_another_generation_than_it_names_is_rejected() -> None:
    desired, other = cut_generation(generation({"a": 1})), generation({"a": 2})
    manifest = msgspec.structs.replace(make_manifest(desired), id=other.id)
    with pytest.raises(WrongContentError, match="gives generation"):
        known_generations().assemble(manifest, new_pieces(desired, None).get)


@pytest.mark.parametrize("text", [b"backend \xff\n", b"nosuchsection x\n"])
def test_a_text_that_is_not_a_configuration_is_rejected(text: bytes) -> None:
    recipe = (digest_of(text),)
    manifest = Manifest(id="0" * 40, config=Recipe(digest_recipe(recipe), recipe))
    with pytest.raises((WrongContentError, ConfigSyntaxError)):
        known_generations().assemble(manifest, {digest_of(text): text}.get)


def test_a_generation_that_is_larger_than_allowed_is_rejected() -> None:
    desired = cut_generation(generation({"a": 1}))
    known = KnownGenerations(piece_limit=100, byte_limit=50)
    with pytest.raises(RecipeError, match="more than"):
        known.assemble(make_manifest(desired), new_pieces(desired, None).get)
