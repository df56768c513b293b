"""Offsets that a replica's table lacks, and whether the log itself explains it. Pure.

Retention moves the log start, which a reader checks before. Compaction, of aborted transactions too, and erasure leave
gaps. Records of transactions, their markers among them, are rows like others. Whatever else is missing was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stratalog.replication.metadata.records import EraseRecord
from stratalog.storage.log.cleaner_checkpoint import CleanerCheckpoint
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig

LONG_MAX = 2**63 - 1


class Gap(NamedTuple):
    """Offsets `[start, end)` without a record."""

    start: int
    end: int


def first_gap(rows: pa.Table, start: int, explained_end: int) -> Gap | None:
    """The first gap from `start` up to the last of `rows` that reaches beyond `explained_end`.

    rows  in order of `offset`, none below `start`
    A gap begins at `explained_end` where that lies inside of it.
    """
    if rows.num_rows == 0:
        return None
    column = rows["offset"]
    if column[-1].as_py() - start + 1 == rows.num_rows or column[-1].as_py() < explained_end:
        return None
    offsets = np.concatenate(([start - 1], column.to_numpy()))
    wide = np.flatnonzero((np.diff(offsets) > 1) & (offsets[1:] > explained_end))
    if not len(wide):
        return None
    at = int(wide[0])
    return Gap(max(int(offsets[at]) + 1, explained_end), int(offsets[at + 1]))


def explained_end(
    topic_partition: TopicPartition,
    topic_config: Mapping[str, str],
    cleaner: CleanerCheckpoint,
    erases: Mapping[int, EraseRecord],
) -> int:
    """The offset below which a gap is explained.

    topic_config  a compacted topic explains any gap: a copy of cleaned files does not say where they were cleaned
    cleaner       what the table was cleaned of, perhaps before `cleanup.policy` was changed
    erases        the requests of the topic
    """
    if LogConfig.from_properties(topic_config).is_compacted:
        return LONG_MAX
    number = topic_partition.partition
    erased = (erase.end_offsets[number] for erase in erases.values() if number < len(erase.end_offsets))
    return max(cleaner.cleaned_end, cleaner.gone_tombstones_end, cleaner.gone_aborted_end, *erased)
