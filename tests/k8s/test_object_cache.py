"""A cache of fetched objects returns the requested version only, for a limited time and in a limited number."""

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.object_cache import ObjectCache
from haptic_trio.k8s.resource import Resource, ResourceRef


def ref(name: str) -> ResourceRef:
    return ResourceRef("Secret", "x", name)


def resource(name: str, version: str) -> Resource:
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "x", "resourceVersion": version}}


def test_an_object_is_there_for_the_version_that_it_was_fetched_for() -> None:
    cache = ObjectCache(2, 10)
    cache.put(ref("a"), resource("a", "7"), "5", now=0)
    assert cache.get(ref("a"), "5") == resource("a", "7")
    assert cache.get(ref("a"), "7") is None
    # The watch comes to what was there already.
    cache.follow(ref("a"), "7")
    assert cache.get(ref("a"), "7") == resource("a", "7")
    cache.follow(ref("a"), "8")
    assert len(cache) == 0


def test_an_object_that_is_gone_or_has_no_version_is_forgotten() -> None:
    cache = ObjectCache(2, 10)
    for version, following in (("1", None), ("", "")):
        cache.put(ref("a"), resource("a", version), version, now=0)
        cache.follow(ref("a"), following)
        assert len(cache) == 0


def test_what_was_used_longest_ago_goes_first() -> None:
    cache = ObjectCache(2, 10)
    for name in "ab":
        cache.put(ref(name), resource(name, "1"), "1", now=0)
    cache.trim(0)
    cache.get(ref("a"), "1")
    cache.put(ref("c"), resource("c", "1"), "1", now=1)
    cache.trim(1)
    assert [name for name in "abc" if cache.get(ref(name), "1")] == ["a", "c"]


def test_unused_objects_expire() -> None:
    cache = ObjectCache(2, 10)
    assert cache.next_expiry is None
    for name in "ab":
        cache.put(ref(name), resource(name, "1"), "1", now=0)
    cache.trim(0)
    expiries = [cache.next_expiry]
    cache.get(ref("b"), "1")
    for now in (6, 10, 16):
        cache.trim(now)
        expiries.append(cache.next_expiry)
    assert expiries == [10, 10, 16, None]


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["put", "get", "follow", "trim"]), st.sampled_from("abcd"), st.sampled_from("123")),
    max_size=30,
)


@given(operations=OPERATIONS, size=st.integers(0, 3))
def test_never_is_there_more_than_its_size_after_a_trim_nor_another_version_than_asked(
    operations: list[tuple[str, str, str]], size: int
) -> None:
    cache = ObjectCache(size, 3)
    known: dict[str, str] = {}
    for now, (operation, name, version) in enumerate(operations):
        match operation:
            case "put":
                known[name] = version
                cache.put(ref(name), resource(name, version), version, now)
            case "follow":
                known[name] = version
                cache.follow(ref(name), version)
            case "trim":
                cache.trim(now)
                assert len(cache) <= size
                assert cache.next_expiry is None or cache.next_expiry > now
            case "get":
                found = cache.get(ref(name), version)
                assert found is None or (found == resource(name, version) and known[name] == version)
