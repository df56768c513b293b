"""Upkeep outlives the session that began it: what is under way is committed, by this session or by the next one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication.follower.partitions import FollowedPartitions
from stratalog.replication.follower.sessions.fetch_session import ENDING, FollowerSession
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.chore import UpkeepLimits
from tests.replication.following import Following, fetch_job
from tests.storage.hand_executor import HandExecutor

LIMITS = UpkeepLimits(merge_files_min=8, merge_spread_files=0, leader_first_ms=0, checkpoint_commits=10_000)


class SlowUpkeep:
    """A follower whose upkeep has an executor of its own in each process."""

    def __init__(self) -> None:
        self.following = Following()
        self.executor = HandExecutor()

    def session(self, name: str) -> FollowerSession:
        """The first session in a process."""
        ports = replace(self.following.stores.ports(), executor=self.executor)
        return FollowerSession(FollowedPartitions(fetch_job(), 0, ports, LIMITS), name)

    def write(self, *words: str) -> None:
        """The leader appends, and publishes that all is committed."""
        self.following.leader_writes(*words)
        log = self.following.log(1)
        log.refresh()
        end = log.log_end_offset
        state = ReplicaProgress(TopicPartition("t", 0), 0, end, log.version, end, topic_id=log.topic_id)
        self.following.published.publish([state], 0, beat_is_due=True)

    def files(self) -> int:
        log = self.following.log(2)
        log.refresh()
        return len(log.files)


@pytest.fixture
def slow() -> SlowUpkeep:
    """A session has begun a merge of eight files, which is not done yet."""
    slow = SlowUpkeep()
    own = slow.following.log(2)
    own.exists_or_create("id")
    own.start_epoch(0, as_leader=False)
    slow.write(*"abcdefgh")
    return slow


def begun(slow: SlowUpkeep) -> FollowerSession:
    session = slow.session("0-1")
    slow.following.turn(session)
    assert (len(slow.executor.waiting), slow.files()) == (1, 8)
    return session


def test_the_next_session_in_the_process_commits_what_was_under_way(slow: SlowUpkeep) -> None:
    first = begun(slow)
    first.end()
    slow.executor.work(1)
    second = slow.following.session("0-2", after=first)
    slow.following.turn(second)
    assert slow.files() == 1
    assert len(slow.executor.waiting) == 0


def test_a_session_that_is_about_to_end_commits_what_is_done_and_begins_nothing(slow: SlowUpkeep) -> None:
    session = begun(slow)
    session.announce_end()
    slow.executor.work(1)
    slow.following.turn(session, ms=100)
    assert session.state == ENDING
    assert slow.files() == 1
    for _ in range(5):
        slow.write(*"jklmnopq")
    slow.following.turn(session)
    assert len(slow.executor.waiting) == 0


def test_what_another_session_did_meanwhile_is_not_done_twice(slow: SlowUpkeep) -> None:
    first = begun(slow)
    first.end()
    slow.executor.work(1)
    here, slow.executor = slow.executor, HandExecutor()
    other = slow.session("1-1")
    slow.following.turn(other)
    slow.executor.work(1)
    slow.following.turn(other)
    files, version = slow.files(), slow.following.log(2).refresh()
    objects = len(slow.following.log(2).table.list_objects("segment="))
    other.end()
    slow.following.turn(slow.following.session("0-2", after=first))
    assert slow.files() == files
    assert slow.following.log(2).refresh() == version
    assert len(slow.following.log(2).table.list_objects("segment=")) == objects - 1, "its own merge is deleted"
    assert len(here.waiting) == 0
