"""The schemas that records name and the registry lacks, and when it is asked for them again. Pure.

Who may write to a topic can name any number of ids. So a batch asks for some, each of them again after 1, 2, 4, …
batches, and some thousand are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.typed_tables.rows.reading import WriterKey

ASKED_MAX = 100
"""Schemas that one batch asks for."""
MISSING_MAX = 10_000
"""Schemas that are remembered as missing; of more, the ones that were asked for first are forgotten."""
PAUSE_MAX = 64
"""The most batches between two questions for one schema."""
NOT_ASKED = f"the schema was not asked for: a batch asks for at most {ASKED_MAX} unknown schemas"


@dataclass(slots=True)
class _Missing:
    text: str
    due: int
    pause: int


@dataclass(slots=True)
class MissingSchemas:
    """By what names them, in the order in which they were asked for first."""

    _missing: dict[WriterKey, _Missing] = field(default_factory=dict)
    _batch: int = 0

    def __len__(self) -> int:
        return len(self._missing)

    def texts(self) -> dict[WriterKey, ResolvedSchema | str]:
        """Why there is none."""
        return {key: each.text for key, each in self._missing.items()}

    def due(self, count: int) -> list[WriterKey]:
        """A batch begins: the schemas to ask for again, those that wait longest first."""
        self._batch += 1
        due = [(each.due, number, key) for number, (key, each) in enumerate(self._missing.items())]
        return [key for at, _, key in sorted(due, key=lambda item: item[:2]) if at <= self._batch][:count]

    def asked(self, found: Mapping[WriterKey, ResolvedSchema | str]) -> set[WriterKey]:
        """What the registry answered. The schemas that are not remembered any more."""
        for key, each in found.items():
            before = self._missing.get(key)
            if not isinstance(each, str):
                self._missing.pop(key, None)
            elif before is None:
                self._missing[key] = _Missing(each, self._batch + 1, 1)
            else:
                pause = min(PAUSE_MAX, 2 * before.pause)
                self._missing[key] = _Missing(each, self._batch + pause, pause)
        forgotten = list(self._missing)[: max(0, len(self._missing) - MISSING_MAX)]
        for key in forgotten:
            del self._missing[key]
        return set(forgotten)
