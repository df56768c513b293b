"""What becomes of a sink's batch that Spark runs, again or for the first time. Pure.

Two notes on storage show what an earlier run of a query has done. A sink without transactions writes the *manifest*
before it hands anything over: the newest batch and its files. A sink in transactions commits its *note* with each
transaction: the newest batch that is stored, as the offset of a group of the query's own. So the note is of a batch
exactly if all of the batch is visible. But offsets expire, so such a sink writes its manifest, too: without files,
before the transaction commits and after it. And a first note, that no batch is stored, comes before the first manifest.
So a note that is missing beside the manifest of a batch has expired, and only if a run died between the transaction's
commit and the second manifest, it is not known whether that batch is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import NamedTuple

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


class Stage(StrEnum):
    """How far the batch of a manifest has come.

    HANDED_OVER  its files are handed over, without a transaction
    BEGUN        its transaction is about to commit
    STORED       its transaction has committed
    """

    HANDED_OVER = "handed over"
    BEGUN = "begun"
    STORED = "stored"


class Noted(NamedTuple):
    """The batch of a sink's manifest."""

    batch_id: int
    stage: Stage = Stage.HANDED_OVER


class Course(Enum):
    """What to do with a batch.

    WRITE   no run of it has stored anything
    FINISH  an earlier run may have handed over a part of its files: hand over the same
    STORED  it is stored: nothing
    """

    WRITE = auto()
    FINISH = auto()
    STORED = auto()


def course_without_transaction(batch: SinkBatchId, noted: Noted | None) -> Course:
    """For a sink without transactions; `noted` is the batch of its manifest, None without one.

    Raises InvalidRequestError for a stream's batch behind it, and for one that was begun in a transaction. A version
    below the stored one of a batch write with `txnAppId` is stored, as Delta has it.
    """
    if noted is None or noted.batch_id < batch.batch_id:
        return Course.WRITE
    if noted.batch_id > batch.batch_id:
        if batch.is_stream:
            raise _behind(batch, noted.batch_id)
        return Course.STORED
    if noted.stage is Stage.BEGUN:
        raise InvalidRequestError(
            f"batch {batch.batch_id} of {batch.sink_id} was begun in a transaction, whose outcome only a sink with its "
            "kafka.transactional.id knows. Start it once more with that option; stop it cleanly before you take the "
            "option away."
        )
    return Course.STORED if noted.stage is Stage.STORED else Course.FINISH


def course_in_transaction(batch: SinkBatchId, note_id: int | None, noted: Noted | None) -> Course:
    """For a sink in transactions; `note_id` is the batch of its note, `noted` that of its manifest, which may be of the
    time before it had a `kafka.transactional.id`.

    A batch that was begun without transactions is finished without one. Raises as `course_without_transaction`, and
    InvalidRequestError where it is not known whether the batch is stored.
    """
    if not batch.is_replayable:
        return Course.WRITE
    if note_id is not None and note_id >= batch.batch_id:
        if batch.is_stream and note_id > batch.batch_id:
            raise _behind(batch, note_id)
        return Course.STORED
    if noted is not None and noted.stage is Stage.BEGUN:
        if note_id is not None or noted.batch_id < batch.batch_id:
            return Course.WRITE  # it did not commit; or Spark has this batch, so that it did
        raise _not_known(batch, noted.batch_id)
    return course_without_transaction(batch, noted)


def first_note(batch: SinkBatchId) -> int:
    """The offset of a note that was committed alone, without metadata: no batch is stored from this one on."""
    return batch.batch_id


def note_id(offset: int, metadata: str) -> int:
    """The newest stored batch by a note; that of a transaction has the transactional id as metadata.

    >>> note_id(7, "copier"), note_id(7, "")
    (7, 6)
    """
    return offset if metadata else offset - 1


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


def _not_known(batch: SinkBatchId, begun_id: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"batch {batch.batch_id} of {batch.sink_id} may be stored or not: a run ended while batch {begun_id} was being "
        f"committed, and the note in group {note_group(batch.sink_id)} has expired since (offsets.retention.minutes), "
        "or was deleted. Nothing is written. See whether the batch's records are in the topic. If so go on behind "
        "them, with a new checkpoint and startingOffsets, or with the next txnVersion; if not, where the batch begins."
    )
