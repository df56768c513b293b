"""An immutable mapping of which a new version costs little, however large it is. Pure."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Set, ValuesView
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_NEWER_MIN = 16
_NOTHING: Mapping[Any, Any] = {}
_NO_KEYS: Set[Any] = frozenset()


class LayeredMap(Mapping[K, V], Generic[K, V]):
    """A large dict that versions share, and what was set and removed since, which each version has for itself.

    A version of n items costs about √n steps: when the newer items are more than that, they go into a new large dict.
    What changed between two versions that share one is found without a look at the rest. Values are never None. The
    order of the items is that of a dict.

    >>> before = LayeredMap({7: "a", 8: "b"})
    >>> after = before.with_items({8: "c"})
    >>> before[8], after[8], after.items_since(before)
    ('b', 'c', {8: 'c'})
    """

    __slots__ = ("_base", "_newer", "_removed")

    def __init__(self, base: Mapping[K, V] | None = None) -> None:
        self._base: Mapping[K, V] = _NOTHING if base is None else base
        self._newer: Mapping[K, V] = _NOTHING
        self._removed: Set[K] = _NO_KEYS

    @staticmethod
    def of(items: Mapping[K, V]) -> LayeredMap[K, V]:
        """The mapping itself if it is one of these; another one must not change afterwards."""
        return items if isinstance(items, LayeredMap) else LayeredMap(items)

    def with_items(self, items: Mapping[K, V]) -> LayeredMap[K, V]:
        """This mapping with some items added or replaced."""
        if self._removed:
            draft = self.draft()
            for key, value in items.items():
                draft.put(key, value)
            return draft.done()
        after: LayeredMap[K, V] = LayeredMap(self._base)
        after._newer = newer = {**self._newer, **items}
        if len(newer) > _NEWER_MIN and len(newer) ** 2 > len(self._base):
            after._base, after._newer = {**self._base, **newer}, _NOTHING
        return after

    def draft(self) -> MapDraft[K, V]:
        """The next version in the making: what belongs together is set and removed one after the other."""
        return MapDraft(self)

    def _merged(self) -> Mapping[K, V]:
        """All items in a mapping that nobody changes."""
        if not self._newer and not self._removed:
            return self._base
        merged = {**self._base, **self._newer}
        for key in self._removed:
            del merged[key]
        return merged

    def items_since(self, before: Mapping[K, V]) -> dict[K, V] | None:
        """The items that `before` lacks or has other values for; None when it has a key that this mapping lacks."""
        earlier = LayeredMap.of(before)
        if earlier._base is self._base and not self._removed and not earlier._removed:
            return self._newer_since(earlier)
        if any(key not in self for key in earlier):
            return None
        known = earlier.get
        return {key: value for key, value in self.items() if not _are_equal(value, known(key))}

    def _newer_since(self, earlier: LayeredMap[K, V]) -> dict[K, V] | None:
        base, newer = self._base, self._newer
        changed = {key: value for key, value in newer.items() if not _are_equal(value, earlier.get(key))}
        for key in earlier._newer.keys() - newer.keys():
            value = base.get(key)
            if value is None:
                return None
            if not _are_equal(value, earlier._newer[key]):
                changed[key] = value
        return changed

    def __getitem__(self, key: K) -> V:
        found = self._newer.get(key)
        if found is not None:
            return found
        if self._removed and key in self._removed:
            raise KeyError(key)
        return self._base[key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def get(self, key: K, default: V | D | None = None, /) -> V | D | None:
        found = self._newer.get(key)
        if found is not None:
            return found
        if self._removed and key in self._removed:
            return default
        return self._base.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._newer or (key in self._base and key not in self._removed)

    def __iter__(self) -> Iterator[K]:
        return iter(self._merged())

    def keys(self) -> KeysView[K]:
        return self._merged().keys()

    def values(self) -> ValuesView[V]:
        return self._merged().values()

    def items(self) -> ItemsView[K, V]:
        return self._merged().items()

    def __len__(self) -> int:
        base = self._base
        return len(base) - len(self._removed) + sum(key not in base for key in self._newer)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mapping):
            return NotImplemented
        other = LayeredMap.of(other)
        if other._base is self._base and not self._removed and not other._removed:
            return self._newer_since(other) == {} and len(self) == len(other)
        return self._merged() == other._merged()

    __hash__ = None  # type: ignore[assignment]  # values may not be hashable

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._merged()!r})"


class MapDraft(Generic[K, V]):
    """A new version of a `LayeredMap` in the making; the earlier one stays as it is. `done` ends it."""

    __slots__ = ("_before", "_changes")

    def __init__(self, before: Mapping[K, V]) -> None:
        self._before = before
        self._changes: _Changes[K, V] | None = None

    @property
    def current(self) -> Mapping[K, V]:
        """The mapping with all changes made so far: the one before the draft while there are none."""
        return self._before if self._changes is None else self._changes

    def put(self, key: K, value: V) -> None:
        """Add an item, or replace it in its place."""
        self._begun().put(key, value)

    def pop(self, key: K) -> V | None:
        """Remove an item, and return its value; None if it is not there."""
        if key not in self.current:
            return None
        return self._begun().pop(key)

    def _begun(self) -> _Changes[K, V]:
        if self._changes is None:
            self._changes = _Changes(LayeredMap.of(self._before))
        return self._changes

    def done(self) -> LayeredMap[K, V]:
        """The new version; the earlier one itself when nothing was set or removed."""
        if self._changes is None:
            return LayeredMap.of(self._before)
        return self._changes.version()


class _Changes(LayeredMap[K, V]):
    """The newer items and removed keys of a draft, which are its own."""

    __slots__ = ("_own", "_own_removed")

    def __init__(self, before: LayeredMap[K, V]) -> None:
        super().__init__(before._base)
        self._newer = self._own = {**before._newer}
        self._removed = self._own_removed = {*before._removed}

    def put(self, key: K, value: V) -> None:
        if key in self._own_removed:  # a dict has it at the end from now on
            self._merge()
        self._own[key] = value

    def pop(self, key: K) -> V:
        value = self[key]
        self._own.pop(key, None)
        if key in self._base:
            self._own_removed.add(key)
        return value

    def _merge(self) -> None:
        self._base = self._merged()
        self._newer = self._own = {}
        self._removed = self._own_removed = set()

    def version(self) -> LayeredMap[K, V]:
        changed = len(self._own) + len(self._own_removed)
        if changed > _NEWER_MIN and changed**2 > len(self._base):
            self._base, self._newer, self._removed = self._merged() if self._base else self._own, _NOTHING, _NO_KEYS
        after = LayeredMap(self._base)
        after._newer, after._removed = self._newer or _NOTHING, self._removed or _NO_KEYS
        return after


def _are_equal(left: object, right: object) -> bool:
    return left is right or left == right
