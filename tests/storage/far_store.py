"""A store in memory that stands for a distant one: it records which requests are made at a time. I/O: none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from stratalog.storage.objects.distance import FAR
from stratalog.storage.objects.memory import MemoryStore

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class FarStore(MemoryStore):
    """`rounds`: how many reads each round of requests had, of those that `each` made together or of one alone."""

    distance = FAR

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[int] = []
        self._is_round = False

    def each(self, call: Callable[[Item], Answer], items: Sequence[Item]) -> Sequence[Answer]:
        self.rounds.append(len(items))
        self._is_round = True
        try:
            return super().each(call, items)
        finally:
            self._is_round = False

    def get_optional(self, path: str) -> bytes | None:
        self._count()
        return super().get_optional(path)

    def get(self, path: str) -> bytes:
        self._count()
        return super().get(path)

    def size(self, path: str) -> int | None:
        self._count()
        return super().size(path)

    def _count(self) -> None:
        if not self._is_round:
            self.rounds.append(1)
