"""Where a query begins for what its group has committed, and what it commits, as tables."""

from __future__ import annotations

import pytest

from stratalog.clients.spark.group.offsets import RENEW_MS, CommitProgress, OffsetBounds
from stratalog.storage.errors import OffsetOutOfRangeError
from stratalog.storage.records import TopicPartition

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIEST, LATEST = 10, 20


@pytest.mark.parametrize(
    ("committed", "reset", "start"),
    [
        (10, "none", 10),
        (15, "none", 15),
        (20, "none", 20),
        (None, "earliest", 10),
        (None, "latest", 20),
        (9, "earliest", 10),
        (9, "latest", 20),
        (21, "earliest", 10),
        (21, "latest", 20),
    ],
)
def test_a_partition_begins_at_the_committed_offset_or_resets(committed: int | None, reset: str, start: int) -> None:
    assert OffsetBounds({P: EARLIEST}, {P: LATEST}, reset).start(P, committed) == start


@pytest.mark.parametrize(
    ("committed", "text"),
    [
        (None, r"Undefined offset with no reset policy for partitions: \[t-0\]"),
        (9, r"Fetch position out of range with no reset policy for partitions: \{t-0=9\}"),
        (21, r"Fetch position out of range with no reset policy for partitions: \{t-0=21\}"),
    ],
)
def test_without_a_reset_an_offset_has_to_be_there(committed: int | None, text: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=text):
        OffsetBounds({P: EARLIEST}, {P: LATEST}, "none").start(P, committed)


def test_above_the_last_stable_offset_nothing_is_skipped() -> None:
    assert OffsetBounds({P: EARLIEST}, {P: LATEST}, "none", ends_at_lso=True).start(P, 25) == LATEST


def test_what_changed_is_committed_and_everything_now_and_then() -> None:
    progress = CommitProgress()
    progress.want({P: 5, Q: 2})
    assert progress.due(0) == {P: 5, Q: 2}
    progress.stored_now({P: 5, Q: 2}, 0)
    assert progress.due(1) == {}
    progress.want({P: 9, Q: 2})
    assert progress.due(1) == {P: 9}
    progress.want({P: 11, Q: 2})  # while the last commit is under way
    progress.stored_now({P: 9}, 2)
    assert progress.due(3) == {P: 11}
    progress.stored_now({P: 11}, 4)
    assert progress.due(RENEW_MS - 1) == {}
    assert progress.due(RENEW_MS) == {P: 11, Q: 2}
    progress.stored_now({P: 11, Q: 2}, RENEW_MS)
    assert progress.due(RENEW_MS) == {}
    progress.want({P: 11})
    assert progress.due(2 * RENEW_MS) == {P: 11}
