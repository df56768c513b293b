"""What follows from the answer to one batch: done, retry, split or fail. Pure.

The rules are those of Kafka's `Sender` and `TransactionManager` (KIP-360), with one difference: the
producer epoch is raised for one partition alone, since the broker's producer state is per partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from stratalog.storage import errors
from stratalog.storage.errors import StratalogError


class Action(Enum):
    """What is done with the batch."""

    DONE = "done"
    RETRY = "retry"
    SPLIT = "split"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`new_epoch`: batches still to come start again at sequence 0 under a higher producer epoch."""

    action: Action
    new_epoch: bool = False
    backoff: bool = False


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the verdict depends on beside the error.

    `is_oldest`: no older batch of the partition is outstanding. `has_gap`: an older one that had a sequence
    failed, so the broker may never see that sequence. `was_overtaken`: an older one was stored since this one was sent,
    so the broker may have judged this one first: an inbox keeps no order as a connection does.
    """

    record_count: int
    attempts: int
    retries: int
    is_idempotent: bool
    is_oldest: bool
    has_gap: bool
    was_overtaken: bool = False


def judge(error: StratalogError | None, seen: Circumstances) -> Verdict:
    """The verdict on a batch that was answered with `error` (None: stored)."""
    if error is None:
        return Verdict(Action.DONE)
    if isinstance(error, errors.RecordTooLargeError | errors.RecordListTooLargeError) and seen.record_count > 1:
        return Verdict(Action.SPLIT)
    if seen.is_idempotent and isinstance(error, errors.OutOfOrderSequenceNumberError | errors.UnknownProducerIdError):
        return _judge_sequence(error, seen)
    if isinstance(error, errors.InvalidProducerEpochError):
        return Verdict(Action.FAIL, new_epoch=True)
    if error.retriable and seen.attempts <= seen.retries:
        return Verdict(Action.RETRY, backoff=True)
    return Verdict(Action.FAIL)


def _judge_sequence(error: StratalogError, seen: Circumstances) -> Verdict:
    """The broker misses records before this batch, so it stored neither this one nor later ones.

    So it is safe to send them again, even with new sequences.
    """
    if not seen.is_oldest or seen.was_overtaken:
        return Verdict(Action.RETRY)
    if seen.has_gap or isinstance(error, errors.UnknownProducerIdError):
        return Verdict(Action.RETRY, new_epoch=True, backoff=True)
    # Acknowledged records are missing in the log (an unclean election): the application has to know.
    return Verdict(Action.FAIL, new_epoch=True)


def backoff_ms(attempts: int, first_ms: int, most_ms: int, jitter: float) -> int:
    """Kafka's exponential backoff (KIP-580) before attempt `attempts` + 1; `jitter` in [-0.2, 0.2]."""
    doubled = first_ms * 2 ** min(attempts - 1, 20)
    return int(min(doubled, most_ms) * (1 + jitter))
