"""Which batches of a sink are written, finished, or stored already: the rules as tables."""

from __future__ import annotations

import pytest

from stratalog.clients.spark.sink_batches import (
    Course,
    SinkBatchId,
    course_in_transaction,
    course_without_transaction,
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
    ("manifest_id", "of_stream", "of_named"),
    [
        (None, Course.WRITE, Course.WRITE),
        (4, Course.WRITE, Course.WRITE),
        (2, Course.WRITE, Course.WRITE),
        (5, Course.FINISH, Course.FINISH),
        (6, BEHIND, Course.STORED),
    ],
)
def test_without_transactions_the_manifest_decides(manifest_id, of_stream, of_named):
    assert course(course_without_transaction, STREAM, manifest_id) == of_stream
    assert course(course_without_transaction, NAMED, manifest_id) == of_named


@pytest.mark.parametrize(
    ("note_id", "manifest_id", "of_stream", "of_named"),
    [
        (None, None, Course.WRITE, Course.WRITE),
        (4, None, Course.WRITE, Course.WRITE),
        (1, None, Course.WRITE, Course.WRITE),
        (5, None, Course.STORED, Course.STORED),
        (6, None, BEHIND, Course.STORED),
        # the query had no transactional id up to here: what it began is finished as it was begun
        (None, 4, Course.WRITE, Course.WRITE),
        (None, 5, Course.FINISH, Course.FINISH),
        (None, 6, BEHIND, Course.STORED),
        # transactions came after the manifest
        (4, 2, Course.WRITE, Course.WRITE),
        (5, 2, Course.STORED, Course.STORED),
        (5, 5, Course.STORED, Course.STORED),
        (6, 5, BEHIND, Course.STORED),
    ],
)
def test_in_transactions_the_note_decides(note_id, manifest_id, of_stream, of_named):
    assert course(course_in_transaction, STREAM, note_id, manifest_id) == of_stream
    assert course(course_in_transaction, NAMED, note_id, manifest_id) == of_named


@pytest.mark.parametrize(("note_id", "manifest_id"), [(None, None), (7, None), (None, 7)])
def test_a_write_that_cannot_come_again_is_written(note_id, manifest_id):
    assert course_in_transaction(ONCE, note_id, manifest_id) is Course.WRITE
