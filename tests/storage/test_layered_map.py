"""LayeredMap against a plain dict, and what a new version looks at."""

from __future__ import annotations

import random

import pytest

from stratalog.storage.layered_map import LayeredMap


class Unwalked(dict):
    """A large dict that must not be walked through."""

    def __iter__(self):
        raise AssertionError("walked through the large dict")

    keys = values = items = __iter__


@pytest.mark.parametrize("seed", range(20))
def test_every_version_is_the_dict_that_it_should_be(seed):
    rng = random.Random(seed)
    size = rng.choice([0, 3, 40, 400])
    versions = [({i: f"{i}" for i in range(size)}, LayeredMap({i: f"{i}" for i in range(size)}))]
    for number in range(120):
        plain, layered = versions[-1]
        items = {rng.randrange(size + 30): rng.choice(["a", "b", f"{number}"]) for _ in range(rng.randrange(4))}
        versions.append(({**plain, **items}, layered.with_items(items)))
    for plain, layered in versions:
        assert layered == plain
        assert plain == layered
        assert dict(layered) == plain
        assert (len(layered), bool(layered)) == (len(plain), bool(plain))
        assert all(layered.get(key) == plain.get(key) and (key in layered) == (key in plain) for key in range(500))
    for _ in range(200):
        (plain, layered), (old_plain, old) = rng.choice(versions), rng.choice(versions)
        changed = {key: value for key, value in plain.items() if old_plain.get(key) != value}
        expected = changed if old_plain.keys() <= plain.keys() else None
        assert layered.items_since(old) == layered.items_since(old_plain) == expected
        assert (layered == old) == (plain == old_plain)


@pytest.mark.parametrize("seed", range(20))
def test_a_version_without_some_keys_is_the_dict_that_it_should_be_in_its_order(seed):
    rng = random.Random(seed)
    size = rng.choice([0, 3, 40, 400])
    versions = [(dict.fromkeys(range(size), "old"), LayeredMap(dict.fromkeys(range(size), "old")))]
    for number in range(120):
        plain, draft = {**versions[-1][0]}, versions[-1][1].draft()
        for _ in range(rng.randrange(6)):
            key = rng.randrange(size + 9)
            if rng.random() < 0.5:
                assert draft.pop(key) == plain.pop(key, None)
            else:
                draft.put(key, f"{number}")
                plain[key] = f"{number}"
            assert dict(draft.current) == plain
        versions.append((plain, draft.done()))
    for plain, layered in versions:
        assert (list(layered), list(layered.keys())) == (list(plain), list(plain))
        assert (list(layered.items()), list(layered.values())) == (list(plain.items()), list(plain.values()))
        assert (len(layered), bool(layered), layered == plain) == (len(plain), bool(plain), True)
        assert all(layered.get(key) == plain.get(key) and (key in layered) == (key in plain) for key in range(420))
    for _ in range(200):
        (plain, layered), (old_plain, old) = rng.choice(versions), rng.choice(versions)
        changed = {key: value for key, value in plain.items() if old_plain.get(key) != value}
        assert layered.items_since(old) == (changed if old_plain.keys() <= plain.keys() else None)
        assert (layered == old) == (plain == old_plain)


def test_a_draft_that_changes_nothing_is_the_same_version():
    before = LayeredMap({1: "a"})
    draft = before.draft()
    assert draft.pop(2) is None
    assert draft.done() is before


def test_a_key_that_was_removed_is_not_there():
    draft = LayeredMap({1: "a", 2: "b"}).draft()
    assert draft.pop(1) == "a"
    after = draft.done()
    assert (1 in after, after.get(1), after.get(1, "none"), dict(after)) == (False, None, "none", {2: "b"})
    with pytest.raises(KeyError):
        after[1]


def test_a_version_of_a_large_map_and_its_changes_look_at_the_new_items_only():
    large = Unwalked(dict.fromkeys(range(10_000), "old"))
    before = after = LayeredMap(large)
    for key in range(9_960, 10_040):
        after = after.with_items({key: "new"})
    assert after.items_since(before) == dict.fromkeys(range(9_960, 10_040), "new")
    assert after.items_since(large) == after.items_since(before)
    assert before.items_since(after) is None
    assert after != large
    assert after != before
    assert after.with_items({7: "old"}) == after
    assert len(after) == 10_040


def test_a_key_that_is_not_there():
    with pytest.raises(KeyError):
        LayeredMap({1: "a"}).with_items({2: "b"})[3]
    assert LayeredMap().get(3, "none") == "none"


def test_versions_that_part_are_not_equal():
    before = LayeredMap({1: "a"})
    left, right = before.with_items({2: "b"}), before.with_items({3: "b"})
    assert left != right
    assert left.items_since(right) is None
    assert left.with_items({3: "b"}) == right.with_items({2: "b"})
