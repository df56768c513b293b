"""What becomes of a sink's batch that Spark runs, again or for the first time. Pure.

Two notes on storage show what an earlier run of a query has done. A sink without transactions writes the *manifest*
before it hands anything over: the newest batch and its files. A sink in transactions commits its *note* with each
transaction: the newest batch that is stored, as the offset of a group of the query's own. So the note is of a batch
exactly if all of the batch is visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC
from stratalog.storage.errors import InvalidRequestError
from stratalog.storage.records import TopicPartition

NOTE_PARTITION = TopicPartition(GROUP_METADATA_TOPIC, 0)
"""The partition under which a note is stored: any that every cluster has."""


@dataclass(frozen=True, slots=True)
class SinkBatchId:
    """A batch of a writer.

    sink_id        a streaming query's id, the `txnAppId` of a batch write, or an id of one write
    is_replayable  Spark may run the same batch again later
    is_stream      batches come in order of their ids, so one behind a stored one comes from an old checkpoint
    """

    sink_id: str
    batch_id: int
    is_replayable: bool
    is_stream: bool = False


class Course(Enum):
    """What to do with a batch.

    WRITE   no run of it has stored anything
    FINISH  an earlier run may have handed over a part of its files: hand over the same
    STORED  it is stored: nothing
    """

    WRITE = auto()
    FINISH = auto()
    STORED = auto()


def course_without_transaction(batch: SinkBatchId, manifest_id: int | None) -> Course:
    """For a sink without transactions; `manifest_id` is the batch of its manifest, None without one.

    Raises InvalidRequestError for a stream's batch behind it. A version below the stored one of a batch write with
    `txnAppId` is stored, as Delta has it.
    """
    if manifest_id is None or manifest_id < batch.batch_id:
        return Course.WRITE
    if manifest_id == batch.batch_id:
        return Course.FINISH
    if batch.is_stream:
        raise _behind(batch, manifest_id)
    return Course.STORED


def course_in_transaction(batch: SinkBatchId, note_id: int | None, manifest_id: int | None) -> Course:
    """For a sink in transactions; `note_id` is the batch of its note, `manifest_id` that of the time before it had a
    `kafka.transactional.id`.

    A batch that was begun without transactions is finished without one. Raises as `course_without_transaction`.
    """
    if not batch.is_replayable:
        return Course.WRITE
    if note_id is not None and note_id >= batch.batch_id:
        if batch.is_stream and note_id > batch.batch_id:
            raise _behind(batch, note_id)
        return Course.STORED
    return course_without_transaction(batch, manifest_id)


def note_group(sink_id: str) -> str:
    """The group whose offset of `NOTE_PARTITION` is the note of a sink in transactions.

    >>> note_group("d4c5")
    'stratalog.sink.d4c5'
    """
    return f"stratalog.sink.{sink_id}"


def _behind(batch: SinkBatchId, stored_id: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"batch {batch.batch_id} of query {batch.sink_id} is behind batch {stored_id}, which its sink has stored: the "
        "checkpoint is an older copy, or two queries run from copies of one checkpoint. Nothing of this batch is "
        "written, since its input may be stored in other batches. Start again with the newest checkpoint, or with a "
        "new checkpoint and startingOffsets that follow what is stored."
    )
