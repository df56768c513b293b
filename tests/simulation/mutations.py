"""Deliberate bugs: each switches one rule of the protocol off, to prove that the simulation would notice.

Used as context managers; the product has no switches for its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from replication.progress import ReplicaProgress
from storage.log import PartitionLog
from storage.table import LEADER_EPOCH, Conflict


@contextmanager
def no_wait_for_the_leaders_start() -> Iterator[None]:
    """Rule (a) off: a follower compares its log with a leader whose table does not show the epoch yet."""
    with patch("replication.followed_replica.leader_has_started", lambda leader, leader_epoch: True):
        yield


@contextmanager
def no_epoch_in_the_followers_table() -> Iterator[None]:
    """Rule (b) off: without something to truncate the follower goes on under the new epoch without a commit."""

    def state_epoch_first(own: PartitionLog, leader_epoch: int, truncate_to: int | None) -> bool:
        if truncate_to is not None and truncate_to < own.log_end_offset:
            return not isinstance(own.start_epoch(leader_epoch, as_leader=False, truncate_to=truncate_to), Conflict)
        own.state._txns[LEADER_EPOCH] = leader_epoch  # only in memory; the next copy states it
        return True

    def is_still_under(own: PartitionLog, leader_epoch: int) -> bool:
        own.state._txns[LEADER_EPOCH] = leader_epoch
        return True

    with (
        patch("replication.followed_replica.state_epoch_first", state_epoch_first),
        patch("replication.followed_replica.is_still_under", is_still_under),
    ):
        yield


@contextmanager
def progress_of_any_epoch_counts() -> Iterator[None]:
    """Rule (c) off: a leader takes a follower's log end whatever epoch it was reached under."""

    def counts_for_epoch(progress: ReplicaProgress, leader_epoch: int) -> bool:
        return True

    with patch("replication.partition.counts_for_epoch", counts_for_epoch):
        yield


MUTATIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "a": no_wait_for_the_leaders_start,
    "b": no_epoch_in_the_followers_table,
    "c": progress_of_any_epoch_counts,
}
