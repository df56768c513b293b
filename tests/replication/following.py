"""Broker 1 leads topic `t`, broker 2 follows it in fetch sessions on stores in memory, whose turns the test runs."""

from __future__ import annotations

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.partitions import FetchJob, FollowedPartitions
from stratalog.replication.follower.sessions.fetch_session import FollowerSession
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.of_leader import LeaderProgress
from stratalog.replication.progress.progress import ReplicaProgress, fetch_progress_path, follower_progress_path
from stratalog.replication.progress.progress_object import ProgressReader
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, create, led_by, register
from tests.storage.logs import started, write

CONFIG = BrokerConfig.from_properties({"replica.fetch.backoff.ms": 100, "stratalog.metadata.poll.ms": 10})
FOLLOWER, FOLLOWER_EPOCH = 2, 12


def progress_path(name: str) -> str:
    return fetch_progress_path(FOLLOWER_EPOCH, f"0-{name}")


def fetch_job(config: BrokerConfig = CONFIG) -> FetchJob:
    return FetchJob(FOLLOWER, FOLLOWER_EPOCH, "broker-2", METADATA_ROOT, config)


class Following:
    """Broker 1 leads topic `t`, broker 2 follows it in sessions whose turns the test runs."""

    def __init__(self, partitions: int = 1) -> None:
        self.stores = MemoryStores()
        self.metadata: MetadataLog = self.stores.metadata()
        register(self.metadata, 1, 11)
        register(self.metadata, FOLLOWER, FOLLOWER_EPOCH)
        self.published = LeaderProgress(self.stores.objects("broker-1"), 11)
        create(self.metadata, "t", *(led_by(1, partition=p) for p in range(partitions)))
        for partition in range(partitions):
            self.leads(led_by(1, partition=partition))

    def leads(self, state: PartitionRecord, topic_id: str = "id") -> PartitionLog:
        """Make broker 1 the leader; its own table starts the epoch."""
        log = self.log(state.leader, state.partition)
        log.exists_or_create(topic_id)
        started(log, state.leader_epoch)
        return log

    def log(self, broker: int, partition: int = 0) -> PartitionLog:
        table = self.stores.table(f"broker-{broker}", TopicPartition("t", partition))
        return PartitionLog(table, LogConfig(), self.stores.clock, self.stores.ids)

    def leader_writes(self, *words: str, partition: int = 0) -> None:
        """Append on broker 1, a commit for each word, and publish."""
        log = self.log(1, partition)
        write(log, *words)
        topic_partition = TopicPartition("t", partition)
        entry = ReplicaProgress(topic_partition, 0, log.log_end_offset, log.version, topic_id=log.topic_id)
        self.published.publish([entry], 0, beat_is_due=False)

    def session(
        self, name: str, *, fetcher_id: int = 0, config: BrokerConfig = CONFIG, after: FollowerSession | None = None
    ) -> FollowerSession:
        """`after`: the session that ran before in the same process."""
        if after is not None:
            return FollowerSession(after.followed, name)
        return FollowerSession(FollowedPartitions(fetch_job(config), fetcher_id, self.stores.ports()), name)

    def turn(self, *sessions: FollowerSession, ms: int = 3_000) -> None:
        """Run turns of the sessions alternately for `ms`; the default is long enough for every rescan and retry."""
        for _ in range(ms // 50):
            self.stores.clock.now_ms += 50
            for session in sessions:
                session.step()

    def progress(self, name: str, leader: int = 1) -> ProgressReader:
        """The progress that session `name` of fetcher 0 published to a leader."""
        path = follower_progress_path(FOLLOWER_EPOCH, leader, f"0-{name}")
        reader = ProgressReader(self.stores.objects("broker-2"), path)
        reader.poll()
        return reader
