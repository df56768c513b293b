"""Which queries may share their topics' partitions: those without state, or whose state covers what they read. Pure.

State stays in the checkpoint of the query that made it, while the partitions move to other members of the group. The
planner knows of each batch whether a partition is another member's, or was. It sees no plan, but the batch's tasks see
the settings of the query: since 4.1 Spark leaves adaptive execution on in a streaming query, and switches it off in one
whose plan has an operator with state, before the first batch and in any kind of session (SPARK-53941,
MicroBatchExecution.disableAQESupportInStatelessIfUnappropriated).
"""

from __future__ import annotations

from collections.abc import Collection

from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.spark.group.offsets import Offsets
from stratalog.clients.spark.group.options import MODE
from stratalog.clients.spark.group.shared_offsets import SharedBatch
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.records import TopicPartition

ADAPTIVE = "spark.sql.adaptive.enabled"
"""The setting by which Spark tells a query with state; true where it is not set."""


def is_taken_over(previous: SharedBatch, committed: OffsetAndMetadata | None) -> bool:
    """Whether another query has read the partition: the group's offset is one that another member committed.

    previous  the query's last batch that Spark has stored
    An offset without a member, as the tools set it, is where the user wants the query to begin.
    """
    return committed is not None and bool(committed.metadata) and not previous.has_committed(committed)


def not_covered(
    previous: SharedBatch, starts: Offsets, subscribed: Collection[TopicPartition], taken: Collection[TopicPartition]
) -> TopicPartition | None:
    """A partition of which others have read what is not in the query's state, if the next batch begins at `starts`.

    previous    the query's last batch
    subscribed  the partitions that all members of the group share
    taken       those that another query has read, as of when this one was assigned them
    None: the query alone has read what there is since its first batch, as if it were in no group.
    """
    for topic_partition in sorted(subscribed):
        start, end = starts.get(topic_partition), previous.ends.get(topic_partition)
        if start is None or (start != end if end is not None else topic_partition in taken):
            return topic_partition
    return None


def check_state(not_covered: str, adaptive: str | None, group_id: str) -> None:
    """InvalidConfigError for a task of a query with state in a batch that the state does not cover.

    not_covered  the partition that is, or was, another member's; "" if none
    adaptive     the task's `ADAPTIVE`, None where it is not set

    >>> check_state("", "false", "billing")
    >>> check_state("web-1", None, "billing")
    """
    if not not_covered or adaptive is None or adaptive.strip().lower() == "true":
        return
    raise InvalidConfigError(
        f"A query with state cannot share partitions: {not_covered} is, or was, another member's of group {group_id} "
        f"({MODE}=share), and what was aggregated, deduplicated, limited or joined of it is in the checkpoint of that "
        "query, so that results would be wrong. A query without state whose session has "
        f"{ADAPTIVE}=false is refused, too, since Spark shows state by that setting: leave it true there. Otherwise "
        f"use {MODE}=commit with a new checkpoint and a group for this query alone; or write to a topic or table by "
        "queries without state, and aggregate that in one query."
    )
