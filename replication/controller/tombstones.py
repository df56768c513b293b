"""Tombstones for records of the metadata log that mean nothing any more, so that compaction can remove them. Pure.

A removed topic leaves the keys of its partitions, configs and erasures; an ended deletion, a removed ACL and a config
that was reset leave one each. `ClusterImage.ended` is what is left.
"""

from __future__ import annotations

from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import TombstoneRecord

TOMBSTONES_MAX = 2_000
"""Tombstones of one commit; the rest follows in the next ones."""
_TOPIC = "topic/"


def end_records(image: ClusterImage) -> Result[int]:
    """Tombstones for keys that are over; the answer is their number.

    The record of a topic's removal stays while its deletion is under way, and goes last: as long as a record of the
    topic is in the log, a fold needs the removal to know that it is over.
    """
    parts = sorted(key for key in image.ended if not key.startswith(_TOPIC))
    keys = parts[:TOMBSTONES_MAX]
    if len(keys) == len(parts):
        waiting = {f"{_TOPIC}{deletion.topic}" for deletion in image.deletions.values()}
        keys += sorted(key for key in image.ended if key.startswith(_TOPIC) and key not in waiting)[:TOMBSTONES_MAX]
    return Result(tuple(TombstoneRecord(key) for key in keys), len(keys))
