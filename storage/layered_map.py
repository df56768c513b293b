"""An immutable mapping of which a new version costs little, however large it is. Pure."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from typing import Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_NEWER_MIN = 16


class LayeredMap(Mapping[K, V], Generic[K, V]):
    """A large dict that versions share, and the items set since, which each version has for itself.

    A version of n items costs about √n steps: when the newer items are more than that, they go into a new large dict.
    What changed between two versions that share one is found without a look at the rest. Values are never None.

    >>> before = LayeredMap({7: "a", 8: "b"})
    >>> after = before.with_items({8: "c"})
    >>> before[8], after[8], after.items_since(before)
    ('b', 'c', {8: 'c'})
    """

    __slots__ = ("_base", "_newer")

    def __init__(self, base: Mapping[K, V] | None = None) -> None:
        self._base: Mapping[K, V] = {} if base is None else base
        self._newer: dict[K, V] = {}

    @staticmethod
    def of(items: Mapping[K, V]) -> LayeredMap[K, V]:
        """The mapping itself if it is one of these; another one must not change afterwards."""
        return items if isinstance(items, LayeredMap) else LayeredMap(items)

    def with_items(self, items: Mapping[K, V]) -> LayeredMap[K, V]:
        """This mapping with some items added or replaced."""
        after: LayeredMap[K, V] = LayeredMap(self._base)
        after._newer = newer = {**self._newer, **items}
        if len(newer) > _NEWER_MIN and len(newer) ** 2 > len(self._base):
            after._base, after._newer = {**self._base, **newer}, {}
        return after

    def items_since(self, before: Mapping[K, V]) -> dict[K, V] | None:
        """The items that `before` lacks or has other values for; None when it has a key that this mapping lacks."""
        earlier = LayeredMap.of(before)
        if earlier._base is self._base:
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
        return self._base[key] if found is None else found

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def get(self, key: K, default: V | D | None = None, /) -> V | D | None:
        found = self._newer.get(key)
        return self._base.get(key, default) if found is None else found

    def __contains__(self, key: object) -> bool:
        return key in self._newer or key in self._base

    def __iter__(self) -> Iterator[K]:
        base = self._base
        yield from base
        yield from (key for key in self._newer if key not in base)

    def items(self) -> ItemsView[K, V]:
        return {**self._base, **self._newer}.items()

    def __len__(self) -> int:
        base = self._base
        return len(base) + sum(key not in base for key in self._newer)

    def __bool__(self) -> bool:
        return bool(self._newer or self._base)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mapping):
            return NotImplemented
        other = LayeredMap.of(other)
        if other._base is self._base:
            return self._newer_since(other) == {} and len(self) == len(other)
        return {**self._base, **self._newer} == {**other._base, **other._newer}

    __hash__ = None  # type: ignore[assignment]  # values may not be hashable

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ {**self} })"


def _are_equal(left: object, right: object) -> bool:
    return left is right or left == right
