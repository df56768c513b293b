"""Which batches of a sink are written, finished, or stored already: the rules as tables."""

from __future__ import annotations

import pytest

from stratalog.clients.spark.sink.batches import (
    Course,
    Noted,
    SinkBatchId,
    Stage,
    course_in_transaction,
    course_without_transaction,
    first_note,
    note_id,
)
from stratalog.storage.errors import InvalidRequestError

STREAM = SinkBatchId("query", 5, is_replayable=True, is_stream=True)
NAMED = SinkBatchId("nightly", 5, is_replayable=True)
ONCE = SinkBatchId("one-write", 0, is_replayable=False)
BEHIND = "error"


def course(decide, *given) -> Course | str:
    try:
        return decide(*given)
    except InvalidRequestError:
        return BEHIND


def test_the_error_of_an_old_checkpoint_says_what_to_do():
    with pytest.raises(InvalidRequestError, match="batch 5 of query query is behind batch 6") as refusal:
        course_in_transaction(STREAM, 6, None)
    assert "Start again with the newest checkpoint, or with a new checkpoint" in str(refusal.value)


@pytest.mark.parametrize(
    ("noted", "of_stream", "of_named"),
    [
        (None, Course.WRITE, Course.WRITE),
        (Noted(4), Course.WRITE, Course.WRITE),
        (Noted(2), Course.WRITE, Course.WRITE),
        (Noted(5), Course.FINISH, Course.FINISH),
        (Noted(6), BEHIND, Course.STORED),
        # the query had a transactional id up to here
        (Noted(4, Stage.BEGUN), Course.WRITE, Course.WRITE),
        (Noted(5, Stage.STORED), Course.STORED, Course.STORED),
        (Noted(6, Stage.STORED), BEHIND, Course.STORED),
    ],
)
def test_without_transactions_the_manifest_decides(noted, of_stream, of_named):
    assert course(course_without_transaction, STREAM, noted) == of_stream
    assert course(course_without_transaction, NAMED, noted) == of_named


def test_what_was_begun_in_a_transaction_needs_the_transactional_id_once_more():
    with pytest.raises(InvalidRequestError, match=r"begun in a transaction.*Start it once more with that option"):
        course_without_transaction(STREAM, Noted(5, Stage.BEGUN))


@pytest.mark.parametrize(
    ("noted_id", "noted", "of_stream", "of_named"),
    [
        (None, None, Course.WRITE, Course.WRITE),
        (4, None, Course.WRITE, Course.WRITE),
        (1, None, Course.WRITE, Course.WRITE),
        (5, None, Course.STORED, Course.STORED),
        (6, None, BEHIND, Course.STORED),
        # the query had no transactional id up to here: what it began is finished as it was begun
        (None, Noted(4), Course.WRITE, Course.WRITE),
        (None, Noted(5), Course.FINISH, Course.FINISH),
        (None, Noted(6), BEHIND, Course.STORED),
        # transactions came after the manifest
        (4, Noted(2), Course.WRITE, Course.WRITE),
        (5, Noted(2), Course.STORED, Course.STORED),
        (5, Noted(5), Course.STORED, Course.STORED),
        (6, Noted(5), BEHIND, Course.STORED),
        # the run ended before the commit, which the note shows
        (4, Noted(5, Stage.BEGUN), Course.WRITE, Course.WRITE),
        # ... or after it
        (5, Noted(5, Stage.BEGUN), Course.STORED, Course.STORED),
        # the note has expired: the manifest knows
        (None, Noted(4, Stage.STORED), Course.WRITE, Course.WRITE),
        (None, Noted(5, Stage.STORED), Course.STORED, Course.STORED),
        (None, Noted(6, Stage.STORED), BEHIND, Course.STORED),
        # ... or Spark does, which has no batch before it has the one before
        (None, Noted(4, Stage.BEGUN), Course.WRITE, Course.WRITE),
    ],
)
def test_in_transactions_the_note_decides(noted_id, noted, of_stream, of_named):
    assert course(course_in_transaction, STREAM, noted_id, noted) == of_stream
    assert course(course_in_transaction, NAMED, noted_id, noted) == of_named


@pytest.mark.parametrize("batch", [STREAM, NAMED])
@pytest.mark.parametrize("begun_id", [5, 6])
def test_a_batch_that_may_be_stored_or_not_is_an_error_that_says_what_to_do(batch, begun_id):
    with pytest.raises(InvalidRequestError, match=r"may be stored or not.*offsets\.retention\.minutes") as refusal:
        course_in_transaction(batch, None, Noted(begun_id, Stage.BEGUN))
    assert "See whether the batch's records are in the topic" in str(refusal.value)


@pytest.mark.parametrize(
    ("noted_id", "noted"), [(None, None), (7, None), (None, Noted(7)), (None, Noted(0, Stage.BEGUN))]
)
def test_a_write_that_cannot_come_again_is_written(noted_id, noted):
    assert course_in_transaction(ONCE, noted_id, noted) is Course.WRITE


def test_a_first_note_says_that_no_batch_is_stored_from_its_own_on():
    assert course_in_transaction(STREAM, note_id(first_note(STREAM), ""), Noted(5, Stage.BEGUN)) is Course.WRITE
    assert course_in_transaction(STREAM, note_id(5, "copier"), Noted(5, Stage.BEGUN)) is Course.STORED
