"""Schemas that a registry lacks: asked for at growing intervals, some in each batch, some thousand remembered."""

from __future__ import annotations

from itertools import pairwise

from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.schema import Schema
from stratalog.clients.typed_tables.rows.missing_schemas import ASKED_MAX, MISSING_MAX, PAUSE_MAX, MissingSchemas


def asked_in(batches: int, missing: MissingSchemas) -> list[list[object]]:
    """What each batch asks for, while the registry lacks it."""
    found: list[list[object]] = []
    for _ in range(batches):
        due = missing.due(ASKED_MAX)
        missing.asked(dict.fromkeys(due, "absent"))
        found.append(list(due))
    return found


def test_a_schema_is_asked_for_after_growing_numbers_of_batches() -> None:
    missing = MissingSchemas()
    missing.asked({7: "absent"})
    batches = [number for number, due in enumerate(asked_in(300, missing), start=1) if due]
    pauses = [later - earlier for earlier, later in pairwise(batches)]
    assert pauses[:6] == [2, 4, 8, 16, 32, 64]
    assert set(pauses[6:]) == {PAUSE_MAX}


def test_a_batch_asks_for_some_and_every_schema_has_its_turn() -> None:
    missing = MissingSchemas()
    missing.asked(dict.fromkeys(range(3 * ASKED_MAX), "absent"))
    asked = asked_in(3, missing)
    assert [len(each) for each in asked] == [ASKED_MAX] * 3
    assert {key for each in asked for key in each} == set(range(3 * ASKED_MAX))


def test_what_was_registered_meanwhile_is_not_asked_for_again() -> None:
    missing = MissingSchemas()
    missing.asked({7: "absent", 8: "absent"})
    missing.asked({7: ResolvedSchema(Schema('"string"'), {})})
    assert missing.texts() == {8: "absent"}


def test_the_oldest_of_too_many_are_forgotten() -> None:
    missing = MissingSchemas()
    missing.asked(dict.fromkeys(range(MISSING_MAX), "absent"))
    assert missing.asked({MISSING_MAX: "absent"}) == {0}
    assert len(missing) == MISSING_MAX
